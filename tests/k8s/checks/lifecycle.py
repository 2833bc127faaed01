"""Pods come and go without losing answers."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.k8s.manifests import Manifests, Object, Pod, selects

END_SECONDS = 5.0
"""What a process may take after its drain: to flush telemetry, end its engine and leave Redis."""

FETCH_SECONDS = 3600
"""The seconds that a pod may take to fetch its model before it starts."""
DEFAULT_DEADLINE_SECONDS = 600
"""Kubernetes' default of ``progressDeadlineSeconds``."""
DEFAULT_PERIOD_SECONDS, DEFAULT_FAILURES = 10, 3
"""Kubernetes' defaults of a probe."""


def grace(manifests: Manifests) -> Iterator[str]:
    """Pods have time for drain delay and drain before they are killed, and so has torchrun."""
    for pod in manifests.serving():
        (container,) = pod.spec["containers"]
        settings = manifests.environment(container)
        prefix = f"SPECMESH_{pod.name.upper()}__DRAIN"
        drain_s = float(settings[f"{prefix}_DELAY_SECONDS"]) + float(settings[f"{prefix}_SECONDS"])
        grace_s = pod.spec["terminationGracePeriodSeconds"]
        if drain_s + END_SECONDS > grace_s:
            yield f"{pod}: drains for {drain_s} s, but is killed after {grace_s} s"
        yield from _shutdown(pod, container.get("command", ()), drain_s, grace_s)


def _shutdown(pod: Pod, command: list[str], drain_s: float, grace_s: float) -> Iterator[str]:
    if "torchrun" in command:
        (after,) = re.findall(r"--shutdown-timeout=(\d+)", " ".join(command)) or ["30"]
        if not drain_s + END_SECONDS <= float(after) < grace_s:
            yield (
                f"{pod}: torchrun kills ranks after {after} s: that must lie between the drain, "
                f"{drain_s} s, and the grace period, {grace_s} s"
            )


def disruptions(manifests: Manifests) -> Iterator[str]:
    """Each kind of pod but those of Jobs has one budget, which keeps no node from being drained."""
    budgets = manifests.of("PodDisruptionBudget")
    for pod in manifests.pods:
        if pod.workload["kind"] == "Job":
            continue
        covering = [
            name
            for name, budget in budgets.items()
            if selects(budget["spec"]["selector"], pod.labels)
        ]
        if len(covering) != 1:
            yield f"{pod}: has {len(covering)} budgets: {covering}"
    for name, budget in budgets.items():
        if budget["spec"].get("maxUnavailable", 0) < 1:
            yield f"PodDisruptionBudget {name}: lets no pod go, so nodes can't be drained"


def rollouts(manifests: Manifests) -> Iterator[str]:
    """New pods come before old ones go, but where they would wait for each other's GPU or disk."""
    for pod in manifests.pods:
        if pod.workload["kind"] != "Deployment":
            continue
        spec = pod.workload["spec"]["strategy"]
        if not {"nvidia.com/gpu", "disk"}.isdisjoint(_scarce(pod)):
            update = spec.get("rollingUpdate", {"maxSurge": 0})
            if update["maxSurge"] != 0:
                yield f"{pod}: a new pod would wait for what the old one has"
        elif spec.get("type") != "Recreate" and spec["rollingUpdate"]["maxUnavailable"] != 0:
            yield f"{pod}: an old pod goes before a new one is ready"


def deadlines(manifests: Manifests) -> Iterator[str]:
    """No rollout counts as failed while its pods fetch or load a model in the time they have."""
    for pod in manifests.pods:
        if pod.workload["kind"] != "Deployment":
            continue
        fetches = any(
            "fetch" in each.get("args", ()) for each in pod.spec.get("initContainers", ())
        )
        start_s = max(_start_seconds(each) for each in pod.spec["containers"])
        takes_s = start_s + (FETCH_SECONDS if fetches else 0)
        spec = pod.workload["spec"]
        deadline_s = spec.get("progressDeadlineSeconds", DEFAULT_DEADLINE_SECONDS)
        if takes_s >= deadline_s:
            yield f"{pod}: may start for {takes_s} s, but its rollout fails after {deadline_s} s"


def _start_seconds(container: Object) -> int:
    """Return how long the startup probe lets a container start; without one nothing waits."""
    if (probe := container.get("startupProbe")) is None:
        return 0
    period_s = probe.get("periodSeconds", DEFAULT_PERIOD_SECONDS)
    return int(period_s * probe.get("failureThreshold", DEFAULT_FAILURES))


def _scarce(pod: Pod) -> set[str]:
    held = {name for container in pod.containers for name in container["resources"]["limits"]}
    claims = [volume.get("persistentVolumeClaim", {}) for volume in pod.spec.get("volumes", ())]
    return held | {"disk" for claim in claims if claim and not claim.get("readOnly")}
