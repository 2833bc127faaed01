"""All manifests are valid by Kubernetes' own schemas, and by tools of what they configure."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from tests.k8s.checks.metrics import triggers
from tests.k8s.prometheus_rule import COPY, prometheus_rule
from tests.k8s.rendering import FULL, NAMES, PLAYED, every_object, manifests, rendered
from tests.k8s.tools import REPOSITORY, needs_tools, validate

pytestmark = needs_tools

CUSTOM = {
    ("Certificate", "cert-manager.io/v1"),
    ("Issuer", "cert-manager.io/v1"),
    ("LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1"),
    ("PodMonitor", "monitoring.coreos.com/v1"),
    ("PrometheusRule", "monitoring.coreos.com/v1"),
    ("ScaledObject", "keda.sh/v1alpha1"),
}
"""Kinds of others, of which Kubernetes has no schema: passed over, with a warning."""
_UNKNOWN = re.compile(r"WARN .* Couldn't find schema for kind (\w+) with api version (\S+) for .*")


def problems(*files: Path) -> list[str]:
    """What is wrong, kinds aside that are known to be others'."""
    found = validate(*files)
    unknown = [_UNKNOWN.fullmatch(line) for line in found]
    return [
        line
        for line, match in zip(found, unknown, strict=True)
        if match is None or match.groups() not in CUSTOM
    ]


def test_everything_is_valid(tmp_path):
    file = tmp_path / "all.yaml"
    file.write_text("\n---\n".join(every_object((*NAMES, *PLAYED))))
    assert problems(file) == []


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("enableServiceLinks:", "enableServiceLink:", "'enableServiceLink' was unexpected"),
        ("kind: PodDisruptionBudget", "kind: PodDisruptionBudgets", "kind PodDisruptionBudgets"),
        ("apiVersion: policy/v1\n", "apiVersion: policy/v1beta1\n", "version policy/v1beta1"),
        ("maxSurge: 1\n", "maxSurge: true\n", "maxSurge"),
    ],
)
def test_what_is_misspelt_is_told(old, new, told, tmp_path):
    whole = next(each for each in rendered("local").split("\n---\n") if old in each)
    file = tmp_path / "broken.yaml"
    file.write_text(whole.replace(old, new, 1))
    assert told in "\n".join(problems(file))


def test_scalers_become_valid_autoscalers(tmp_path):
    """What KEDA makes of them: of its own kind there is no schema here."""
    scalers = []
    for name, scaled in manifests(FULL).of("ScaledObject").items():
        spec = scaled["spec"]
        behaviour = spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
        metrics = [_metric(trigger) for trigger in spec["triggers"]]
        assert all(trigger.keys() >= {"type", "name", "metadata"} for trigger in spec["triggers"])
        scalers.append(
            {
                "apiVersion": "autoscaling/v2",
                "kind": "HorizontalPodAutoscaler",
                "metadata": {"name": name},
                "spec": {
                    "scaleTargetRef": {
                        "apiVersion": "apps/v1",
                        "kind": "Deployment",
                        **spec["scaleTargetRef"],
                    },
                    "minReplicas": spec["minReplicaCount"],
                    "maxReplicas": spec["maxReplicaCount"],
                    "behavior": behaviour,
                    "metrics": metrics,
                },
            }
        )
    assert len(scalers) == 4
    file = tmp_path / "scalers.yaml"
    file.write_text(yaml.safe_dump_all(scalers))
    assert problems(file) == []


def _metric(trigger):
    kind = trigger["metricType"]
    if trigger["type"] == "cpu":
        number = int(trigger["metadata"]["value"])
        target = {"type": kind, "averageUtilization": number}
        return {"type": "Resource", "resource": {"name": "cpu", "target": target}}
    field = {"Value": "value", "AverageValue": "averageValue"}[kind]
    assert float(trigger["metadata"]["threshold"]) > 0
    target = {"type": kind, field: trigger["metadata"]["threshold"]}
    return {"type": "External", "external": {"metric": {"name": trigger["name"]}, "target": target}}


@pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is in Debian's package 'prometheus'"
)
def test_promtool_accepts_the_queries_of_scalers(tmp_path):
    recorded = [
        {"record": f"trigger:{number}", "expr": query}
        for number, (_, _, query) in enumerate(triggers(manifests(FULL)))
    ]
    assert len(recorded) == 8
    file = tmp_path / "queries.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "triggers", "rules": recorded}]}))
    done = subprocess.run(
        ["promtool", "check", "rules", file], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_rules_are_those_of_deploy_monitoring():
    assert COPY.read_text() == prometheus_rule(), "python -m tests.k8s.prometheus_rule"
    (rule,) = manifests(FULL).of("PrometheusRule").values()
    assert rule["spec"] == yaml.safe_load(
        (REPOSITORY / "deploy/monitoring/alerts.yaml").read_text()
    )


def test_the_dashboard_is_that_of_deploy_monitoring():
    data = manifests(FULL).of("ConfigMap")["specmesh-dashboard"]["data"]
    dashboard = (REPOSITORY / "deploy/monitoring/dashboard.json").read_text()
    assert data == {"specmesh.json": dashboard}
