"""Metrics that decisions go by are recorded by the role that they are about."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from tests.k8s.manifests import ROLES, Manifests
from tests.k8s.tools import REPOSITORY
from tests.monitoring.promql import ADDED_BY_MONITOR, ADDED_BY_PROMETHEUS, exported, selected

from specmesh.serving import conventions, metrics
from specmesh.serving.instruments import Metric

RECORDED_IN = {
    "services/specmesh/inference": ("verifier", "drafter"),
    "orchestrator/specmesh/orchestrator": ("orchestrator",),
    "services/specmesh/confidence": ("confidence",),
    "services/specmesh/gateway": ("gateway",),
    "services/specmesh/serving": ROLES,
}
"""Which roles run the code of each folder."""

FROM_RESOURCE = {"service_name"}
_ROLE = re.compile(r'service_name="specmesh-(\w+)"')
_SELECTOR = re.compile(r"\b(\w+)\s*\{([^}]*)\}")
_NAMESPACE = re.compile(r'namespace="([^"]*)"')


@cache
def recorders() -> dict[str, frozenset[str]]:
    """By name as scraped, without the suffix of a histogram's series: which roles record it."""
    constants = {name: value for name, value in vars(metrics).items() if isinstance(value, Metric)}
    found: dict[str, set[str]] = {}
    for folder, roles in RECORDED_IN.items():
        code = "".join(
            file.read_text()
            for file in (REPOSITORY / folder).rglob("*.py")
            if file != REPOSITORY / "services/specmesh/serving/metrics.py"
        )
        for constant, metric in constants.items():
            if re.search(rf"\b{constant}\b", code):
                found.setdefault(metric.name.replace(".", "_"), set()).update(roles)
    return {name: frozenset(roles) for name, roles in found.items()}


def recording(series: str) -> frozenset[str]:
    """The roles that have a series."""
    fitting = [name for name in recorders() if series == name or series.startswith(f"{name}_")]
    return recorders()[max(fitting, key=len)] if fitting else frozenset()


def triggers(manifests: Manifests) -> Iterator[tuple[str, str, str]]:
    """What each ScaledObject asks Prometheus: its name, the role that it scales, the query."""
    for name, scaled in manifests.of("ScaledObject").items():
        for trigger in scaled["spec"]["triggers"]:
            if trigger["type"] == "prometheus":
                role = scaled["spec"]["scaleTargetRef"]["name"]
                yield f"ScaledObject {name}, {trigger['name']}", role, trigger["metadata"]["query"]


def queries(manifests: Manifests) -> Iterator[str]:
    """Scalers ask for series that there are, of the role and the namespace that they mean."""
    namespaces = list(manifests.of("Namespace"))
    for where, role, query in triggers(manifests):
        for series, labels in selected(query):
            if series not in _exported():
                yield f"{where}: no process exports {series}"
            unknown = labels - _labels()
            yield from (f"{where}: no series has a label {label}" for label in sorted(unknown))
        for series, inside in _SELECTOR.findall(query):
            asked = _ROLE.findall(inside)
            if not {*asked} <= recording(series):
                yield f"{where}: {asked[0]} doesn't export {series}"
            elif not asked and not {role, "orchestrator"} & recording(series):
                yield f"{where}: neither {role} nor orchestrators export {series}"
        selectors = _SELECTOR.findall(query)
        if not selectors:
            yield f"{where}: asks for nothing"
        # Named once, so that an overlay can replace it; what has none is matched by namespace.
        if _NAMESPACE.findall(query) != namespaces:
            yield f"{where}: must be of namespace {namespaces}"
        elif len(selectors) > 1 and query.count("sum by (namespace)") < len(selectors):
            yield f"{where}: takes series of other namespaces, too"


def alerts(manifests: Manifests) -> Iterator[str]:
    """Rules ask for series that a process here records, or a gateway: the rules are for every mesh,
    and without a gateway its own never fire."""
    roles = {pod.name for pod in manifests.serving()} | {"gateway"}
    for name, rule in manifests.of("PrometheusRule").items():
        for alert in (alert for group in rule["spec"]["groups"] for alert in group["rules"]):
            for series, _ in selected(alert["expr"]):
                if not roles & recording(series):
                    yield f"PrometheusRule {name}, {alert['alert']}: nobody exports {series}"


@cache
def _exported() -> frozenset[str]:
    return frozenset(exported())


@cache
def _labels() -> frozenset[str]:
    attributes = {
        value.replace(".", "_")
        for name, value in vars(conventions).items()
        if name.isupper() and isinstance(value, str)
    }
    return frozenset(attributes | ADDED_BY_PROMETHEUS | ADDED_BY_MONITOR | FROM_RESOURCE)


def scaling(manifests: Manifests) -> Iterator[str]:
    """What is scaled is there, leaves its number to the scaler, and goes slowly enough to drain."""
    for name, scaled in manifests.of("ScaledObject").items():
        target = scaled["spec"]["scaleTargetRef"]["name"]
        deployment = manifests.of("Deployment").get(target)
        if deployment is None:
            yield f"ScaledObject {name}: there is no Deployment {target!r}"
            continue
        if "replicas" in deployment["spec"]:
            yield f"ScaledObject {name}: each apply would set the replicas of {target} back"
        behaviour = scaled["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
        grace_s = manifests.pod(target).spec["terminationGracePeriodSeconds"]
        for policy in behaviour["scaleDown"]["policies"]:
            if policy["type"] != "Pods" or policy["periodSeconds"] < grace_s * policy["value"]:
                yield f"ScaledObject {name}: takes more away than drains meanwhile ({grace_s} s)"


def monitored(manifests: Manifests) -> Iterator[str]:
    """Where anything is scraped, every role is."""
    for name, monitor in manifests.of("PodMonitor").items():
        for pod in manifests.serving():
            if not monitor["spec"]["selector"]["matchLabels"].items() <= pod.labels.items():
                yield f"PodMonitor {name}: leaves {pod} out"
