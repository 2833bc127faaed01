"""Pods fulfil the Pod Security Standard "restricted", and say what they take."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.k8s.manifests import Manifests, Object, Pod

OF_PODS: dict[str, Any] = {
    "automountServiceAccountToken": False,
    "enableServiceLinks": False,
    "securityContext": {
        "runAsNonRoot": True,
        "runAsUser": 10001,
        "runAsGroup": 10001,
        "fsGroup": 10001,
        "seccompProfile": {"type": "RuntimeDefault"},
    },
}
OF_CONTAINERS: dict[str, Any] = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def restricted(manifests: Manifests) -> Iterator[str]:
    """No pod is more than its work asks for, of any kind of workload."""
    for pod in manifests.pods:
        for name, wanted in OF_PODS.items():
            if pod.spec.get(name) != wanted:
                yield f"{pod}: {name} must be {wanted}, not {pod.spec.get(name)}"
        for container in pod.containers:
            given = container.get("securityContext")
            if given != OF_CONTAINERS:
                yield f"{pod}: securityContext must be {OF_CONTAINERS}, not {given}"
        yield from _outside(pod)


def _outside(pod: Pod) -> Iterator[str]:
    for name in ("hostNetwork", "hostPID", "hostIPC"):
        if name in pod.spec:
            yield f"{pod}: has {name}"
    for volume in pod.spec.get("volumes", ()):
        if "hostPath" in volume:
            yield f"{pod}: mounts a path of its node"
        if "emptyDir" in volume and "sizeLimit" not in volume["emptyDir"]:
            yield f"{pod}: may fill its node's disk: {volume['name']} has no sizeLimit"


_UNITS = {"Mi": 2**20, "Gi": 2**30}


def disk(manifests: Manifests) -> Iterator[str]:
    """Pods go where their node has the disk that they may fill."""
    for pod in manifests.pods:
        asked = [_bytes(each["resources"].get("requests", {})) for each in pod.containers]
        volumes = [each["emptyDir"] for each in pod.spec.get("volumes", ()) if "emptyDir" in each]
        filled = sum(
            _quantity(each["sizeLimit"]) for each in volumes if each.get("medium") != "Memory"
        )
        if filled > max(asked):
            yield f"{pod}: may fill {filled} bytes of disk, but asks for {max(asked)}"


def _bytes(requests: Object) -> int:
    return _quantity(requests.get("ephemeral-storage", "0Mi"))


def _quantity(text: str) -> int:
    return int(text[:-2]) * _UNITS[text[-2:]]


def resources(manifests: Manifests) -> Iterator[str]:
    """Every container says what it takes; memory that it was not promised would get it killed."""
    for pod in manifests.pods:
        for container in pod.containers:
            yield from _takes(pod, container["resources"])


def _takes(pod: Pod, resources: Object) -> Iterator[str]:
    for name in ("cpu", "memory"):
        if not all(name in resources.get(side, ()) for side in ("requests", "limits")):
            yield f"{pod}: doesn't say how much {name} it takes"
            return
    for name in ("memory", "nvidia.com/gpu"):
        promised, most = (resources[side].get(name) for side in ("requests", "limits"))
        if promised != most:
            yield f"{pod}: takes up to {most} of {name}, but is promised {promised}"
