"""The difference of two answers, by their critical paths."""

from __future__ import annotations

from dataclasses import dataclass

from specmesh.traces.analysis.path_parts import PathActivity, by_service
from specmesh.traces.trace import Trace


@dataclass(frozen=True, slots=True)
class PathChange:
    """The times that two answers waited for one activity at the nodes of one service."""

    service: str
    part: PathActivity
    first_ms: float
    second_ms: float

    @property
    def lost_ms(self) -> float:
        """The additional time that the second one waited."""
        return self.second_ms - self.first_ms


@dataclass(frozen=True, slots=True)
class Difference:
    """The durations of two answers, and the changes, which add up to ``lost_ms``, the largest loss
    first."""

    first_ms: float
    second_ms: float
    changes: tuple[PathChange, ...]

    @property
    def lost_ms(self) -> float:
        """The additional time that the second one took."""
        return self.second_ms - self.first_ms


def difference(first: Trace, second: Trace) -> Difference:
    """Compare two traces. The replicas of a service count together, since it is chance which one
    answered."""
    times = [by_service(trace.path) for trace in (first, second)]
    changes = [
        PathChange(*key, times[0].get(key, 0.0), times[1].get(key, 0.0))
        for key in {**times[0], **times[1]}
    ]
    ordered = sorted(changes, key=lambda change: -change.lost_ms)
    return Difference(first.root.duration_ms, second.root.duration_ms, tuple(ordered))
