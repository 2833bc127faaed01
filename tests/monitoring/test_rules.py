"""Alert rules and dashboard ask for what there is, and each rule fires when it should."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import defaultdict

import pytest
import yaml
from tests.monitoring.promql import (
    DECLARED,
    MONITORING,
    REPOSITORY,
    dashboard,
    exported,
    panel_queries,
    queries,
    rule_tests,
    rules,
    selected,
)

PROCESS = {"process_cpu_seconds_total", "process_resident_memory_bytes"}
"""From prometheus_client itself."""
OPERATIONS = (REPOSITORY / "docs" / "operations.md").read_text()

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None,
    reason="promtool is not on PATH: no package index that pip knows has it, Debian's package "
    "'prometheus' does",
)


def promtool(*arguments: str) -> None:
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("where", "expr"), queries().items())
def test_queries_ask_for_metrics_that_are_declared(where, expr):
    asked = {name for name, _ in selected(expr)}
    assert asked
    assert asked <= exported() | PROCESS


def test_every_alert_is_tried_when_it_must_fire_and_when_it_must_not():
    tried = defaultdict(set)
    for case in rule_tests():
        tried[case["alertname"]].add(bool(case["exp_alerts"]))
    assert tried == {rule["alert"]: {True, False} for rule in rules()}


def test_every_alert_says_what_to_do():
    headings = set(re.findall(r"^### (\w+)$", OPERATIONS, re.MULTILINE))
    assert headings == {rule["alert"] for rule in rules()}
    for rule in rules():
        assert rule["annotations"]["runbook"] == f"docs/operations.md#{rule['alert'].lower()}"
        assert rule["labels"]["severity"] in {"page", "ticket"}


def test_operations_explain_every_metric_and_no_other():
    metrics = OPERATIONS.partition("\n## Metrics\n")[2].partition("\n## ")[0]
    told = set(re.findall(r"^\| `([\w.]+)` \|", metrics, re.MULTILINE))
    assert told == {metric.name for metric in DECLARED}


def test_names_of_metrics_are_different():
    assert len({metric.name for metric in DECLARED}) == len(DECLARED) > 40


def test_panels_have_places_and_descriptions_of_their_own():
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}
    assert len(places) == len(panels)
    for panel in panels:
        assert panel["type"] == "row" or (panel["description"] and panel["targets"])


def test_every_process_can_be_selected():
    variables = {each["name"]: each["query"] for each in dashboard()["templating"]["list"]}
    (asked,) = re.findall(r'__name__=~"([^"]+)"', variables["instance"])
    # A gateway answers HTTP, all others gRPC.
    assert set(asked.split("|")) == {"specmesh_rpc_active", "http_server_active_requests"}
    assert set(asked.split("|")) <= exported()


@needs_promtool
def test_promtool_accepts_the_rules():
    promtool("check", "rules", str(MONITORING / "alerts.yaml"))


@needs_promtool
def test_rules_fire_when_they_should_and_else_not():
    promtool("test", "rules", str(MONITORING / "alerts_test.yaml"))


@needs_promtool
def test_promtool_accepts_the_queries_of_the_dashboard(tmp_path):
    recorded = [
        {"record": f"panel:{number}", "expr": expr}
        for number, (_, expr) in enumerate(panel_queries())
    ]
    file = tmp_path / "dashboard.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": recorded}]}))
    promtool("check", "rules", str(file))
