"""Manifests and Containerfile keep to the policies of checkov and hadolint.

Which of checkov's are left out, and why, is in k8s/checkov.yaml.
"""

from __future__ import annotations

import json

import yaml
from tests.k8s.rendering import every_object, manifests
from tests.k8s.tools import K8S, REPOSITORY, needs_tools, run

pytestmark = needs_tools


def test_checkov_finds_nothing_but_what_is_broken_here(tmp_path):
    """In one run, since its start takes seconds."""
    broken = manifests("local").of("Deployment")["drafter"]
    broken["metadata"]["name"] = "broken"
    broken["spec"]["template"]["spec"]["containers"][0]["securityContext"] = {}
    (tmp_path / "all.yaml").write_text("\n---\n".join([*every_object(), yaml.safe_dump(broken)]))
    # With --skip-download it asks nobody for anything.
    arguments = ["--skip-download", "--output", "json", "--directory", str(tmp_path)]
    done = run("checkov", "--config-file", K8S / "checkov.yaml", *arguments)
    report = json.loads(done.stdout)
    assert report["summary"]["parsing_errors"] == 0
    failed = report["results"]["failed_checks"]
    assert {each["resource"].split(".")[2] for each in failed} == {"broken"}, [
        f"{each['check_id']} {each['resource']}: {each['check_name']}" for each in failed
    ]
    assert "CKV_K8S_22" in {each["check_id"] for each in failed}  # a root that can be written to


def test_hadolint_finds_nothing_but_what_is_broken_here(tmp_path):
    broken = tmp_path / "Containerfile"
    broken.write_text("FROM debian\nRUN cd /tmp\n")
    assert "DL3006" in run("hadolint", broken).stdout
    done = run("hadolint", REPOSITORY / "Containerfile")
    assert done.returncode == 0, done.stdout + done.stderr
