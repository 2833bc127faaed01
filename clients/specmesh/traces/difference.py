"""Where one answer took longer than another: their critical paths side by side."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from specmesh.traces.path_parts import Part, summed
from specmesh.traces.spans import Node
from specmesh.traces.trace import Trace


@dataclass(frozen=True, slots=True)
class PathChange:
    """What the two answers waited for at the nodes of one service, by what went on there."""

    service: str
    part: Part
    first_ms: float
    second_ms: float

    @property
    def lost_ms(self) -> float:
        """How much longer the second one waited."""
        return self.second_ms - self.first_ms


@dataclass(frozen=True, slots=True)
class Difference:
    """Two answers; the changes add up to ``lost_ms``, the largest loss first."""

    first_ms: float
    second_ms: float
    changes: tuple[PathChange, ...]

    @property
    def lost_ms(self) -> float:
        """How much longer the second one took."""
        return self.second_ms - self.first_ms


def difference(first: Trace, second: Trace) -> Difference:
    """Of two traces. Replicas of a service count together: which of them answered is chance."""
    times = [_by_service(trace) for trace in (first, second)]
    changes = [
        PathChange(*key, times[0].get(key, 0.0), times[1].get(key, 0.0))
        for key in {**times[0], **times[1]}
    ]
    ordered = sorted(changes, key=lambda change: -change.lost_ms)
    return Difference(first.root.duration_ms, second.root.duration_ms, tuple(ordered))


def _by_service(trace: Trace) -> dict[tuple[str, Part], float]:
    found: dict[tuple[str, Part], float] = defaultdict(float)
    for part in summed(trace.path()):
        found[_service(part.node), part.part] += part.ms
    return found


def _service(node: Node) -> str:
    return node.service.removeprefix("specmesh-") or node.label
