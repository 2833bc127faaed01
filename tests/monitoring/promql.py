"""What deploy/monitoring asks Prometheus for, and what the mesh has to offer."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import CollectorRegistry

from specmesh.serving import metrics
from specmesh.serving.instruments import CounterMetric, GaugeMetric, HistogramMetric, Metric

REPOSITORY = Path(__file__).parents[2]
MONITORING = REPOSITORY / "deploy" / "monitoring"

DECLARED = [value for value in vars(metrics).values() if isinstance(value, Metric)]
ADDED_BY_PROMETHEUS = {"instance", "job"}
ADDED_BY_MONITOR = {"namespace", "pod", "container", "endpoint"}
"""The labels that a ServiceMonitor or PodMonitor adds in Kubernetes."""

_SELECTOR = re.compile(r"\b((?:specmesh|gen_ai|http|rpc|db|process)_\w+)\s*(\{[^}]*\})?")
_LABEL = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"")
_GROUPING = re.compile(r"\b(?:by|on|without|ignoring)\s*\(([^)]*)\)")


def rules() -> list[dict[str, Any]]:
    """The alert rules."""
    groups = yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def rule_tests() -> list[dict[str, Any]]:
    """What promtool is to try of them."""
    tests = yaml.safe_load((MONITORING / "alerts_test.yaml").read_text())["tests"]
    return [case for test in tests for case in test["alert_rule_test"]]


def dashboard() -> dict[str, Any]:
    """The Grafana dashboard."""
    loaded: dict[str, Any] = json.loads((MONITORING / "dashboard.json").read_text())
    return loaded


def panel_queries() -> Iterator[tuple[str, str]]:
    """The title of each panel with each of its queries, variables filled in."""
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            expr = target["expr"].replace("$__rate_interval", "5m")
            yield panel["title"], expr.replace("$model", ".*").replace("$instance", ".*")


def queries() -> dict[str, str]:
    """All queries, by where they stand."""
    found = {f"alert {rule['alert']}": rule["expr"] for rule in rules()}
    for number, (title, expr) in enumerate(panel_queries()):
        found[f"panel {title} {number}"] = expr
    return found


def selected(expr: str) -> Iterable[tuple[str, set[str]]]:
    """Each metric that a query asks for, with the labels that it selects by."""
    plain = _GROUPING.sub("", expr)
    return [(name, set(_LABEL.findall(labels))) for name, labels in _SELECTOR.findall(plain)]


def grouped_by(expr: str) -> set[str]:
    """The labels that a query groups by."""
    listed = ",".join(_GROUPING.findall(expr))
    return {label.strip() for label in listed.split(",") if label.strip()}


def exported() -> set[str]:
    """What the samples of all declared metrics are called once they are scraped."""
    registry = CollectorRegistry()
    reader = PrometheusMetricReader(registry=registry)
    provider = MeterProvider([reader], shutdown_on_exit=False)
    meter = provider.get_meter("all")
    for metric in DECLARED:
        match metric:
            case CounterMetric():
                meter.create_counter(metric.name, metric.unit).add(1)
            case GaugeMetric():
                meter.create_gauge(metric.name, metric.unit).set(1)
            case HistogramMetric():
                meter.create_histogram(metric.name, metric.unit).record(1)
    names = {sample.name for family in registry.collect() for sample in family.samples}
    provider.shutdown()
    return names
