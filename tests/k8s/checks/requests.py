"""The requests of pods add up to what the table of overlays in docs/kubernetes.md says."""

from __future__ import annotations

import re
from typing import NamedTuple

from tests.k8s.checks.memory import MIB, mib
from tests.k8s.manifests import Manifests, Object, Pod
from tests.k8s.tools import REPOSITORY

CLUSTER_CORES, CLUSTER_MIB = 1.0, 512
"""The requests of the cluster's own pods on a node that has all of them, as kind's does."""
_WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


class Room(NamedTuple):
    """Cores and memory."""

    cores: float
    mib: float


def told(overlay: str) -> Room:
    """The figures of the table."""
    text = (REPOSITORY / "docs/kubernetes.md").read_text()
    row = rf"^\| `{overlay}` \|.*\| (\w+) cores, (\w+) gigabytes \|$"
    (numbers,) = re.findall(row, text, re.MULTILINE)
    cores, gigabytes = map(_WORDS.index, numbers)
    return Room(cores, gigabytes * 1e9 / MIB)


def requested(manifests: Manifests) -> Room:
    """The requests of all pods beside the cluster's own."""
    pods = [(_replicas(pod), _room(pod)) for pod in manifests.pods]
    return Room(
        CLUSTER_CORES + sum(number * room.cores for number, room in pods),
        CLUSTER_MIB + sum(number * room.mib for number, room in pods),
    )


def _replicas(pod: Pod) -> int:
    spec = pod.workload["spec"]
    return int(spec.get("replicas", spec.get("parallelism", 1)))


def _room(pod: Pod) -> Room:
    """The requests of a pod, whose containers run together once the initial ones have ended."""
    together = [*map(_of, pod.spec["containers"])]
    alone = [*map(_of, pod.spec.get("initContainers", ()))]
    cores, mibs = (sum(each) for each in zip(*together, strict=True))
    return Room(
        max(cores, *(each.cores for each in alone), 0.0),
        max(mibs, *(each.mib for each in alone), 0.0),
    )


def _of(container: Object) -> Room:
    requests = container["resources"]["requests"]
    number, milli = re.fullmatch(r"(\d+)(m?)", requests["cpu"]).groups()
    return Room(int(number) / (1000 if milli else 1), mib(requests["memory"]))
