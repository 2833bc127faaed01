"""What pods may take adds up: the table of docs/kubernetes.md, the manifests and the code agree."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from tests.k8s.checks.code import settings_of
from tests.k8s.manifests import Manifests, Pod
from tests.k8s.tools import REPOSITORY

from specmesh.orchestrator.chats import sandbox

MIB = 2**20
COPIES = {"orchestrator": 5, "gateway": 6, "confidence": 5}
"""How many copies of a request's bytes a process has at most, as its ``--help`` says."""
_ROW = re.compile(r"^\| (\w+) \|([^|]+)\|([^|]*)\| ([\d,]+) \|$", re.MULTILINE)
_BOUND = re.compile(r"`([^`]+)` ([\d,]+)(?: MiB)?")


class Row(NamedTuple):
    """Something that takes memory, and the bound that says how much."""

    pod: str
    what: str
    bound: str
    mib: int


@cache
def rows() -> tuple[Row, ...]:
    """The table."""
    text = (REPOSITORY / "docs/kubernetes.md").read_text().partition("### Memory")[2]
    return tuple(
        Row(pod, what, bound.strip(), int(mib.replace(",", "")))
        for pod, what, bound, mib in _ROW.findall(text)
    )


def memory(manifests: Manifests) -> Iterator[str]:
    """Limits are no less than the table's sums, and its bounds are those at work."""
    for pod in manifests.serving():
        own = [row for row in rows() if row.pod == pod.name]
        if not own:
            continue
        (container,) = pod.spec["containers"]
        limit = mib(container["resources"]["limits"]["memory"])
        total = sum(row.mib for row in own)
        if total > limit:
            yield f"{pod}: may take {total} MiB, but has {limit}"
        for row in own:
            yield from _bound(pod, manifests.environment(container), row)


def _bound(pod: Pod, variables: dict[str, str], row: Row) -> Iterator[str]:
    for name, told in _BOUND.findall(row.bound):
        number = int(told.replace(",", ""))
        if name == "chats/sandbox.py":
            at_work = sandbox.MEMORY_BYTES // MIB
        else:
            at_work = _setting(pod.name, name, variables)
            if name == "MAX_HELD_BYTES":
                at_work //= MIB
                if row.mib != COPIES[pod.name] * at_work:
                    yield f"{pod}: {COPIES[pod.name]} copies of {at_work} MiB are not {row.mib}"
        if at_work != number:
            yield f"{pod}: {name} is {at_work}, docs/kubernetes.md says {number}"


def _setting(role: str, name: str, variables: dict[str, str]) -> int:
    default = settings_of(role).model_fields[name.lower()].default
    return int(variables.get(f"SPECMESH_{role.upper()}__{name}", default))


def mib(quantity: str) -> int:
    """The MiB of a quantity of Kubernetes."""
    number, unit = re.fullmatch(r"(\d+)(Mi|Gi)", quantity).groups()
    return int(number) * {"Mi": 1, "Gi": 1024}[unit]
