"""Percentiles over many traces, per node and per span name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from specmesh.serving.conventions import FORWARD_MS, QUEUE_MS
from specmesh.traces.analysis.path_parts import PathActivity, summed
from specmesh.traces.trace import Trace


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Percentiles of durations in milliseconds, linearly interpolated between the values."""

    count: int
    mean_ms: float
    p50_ms: float
    p90_ms: float
    p99_ms: float
    max_ms: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Percentiles:
        """Compute the percentiles of ``values``, at least one."""
        ordered = sorted(values)

        def at(share: float) -> float:
            place = share * (len(ordered) - 1)
            low = int(place)
            high = min(low + 1, len(ordered) - 1)
            return ordered[low] + (place - low) * (ordered[high] - ordered[low])

        return cls(len(values), fmean(values), at(0.5), at(0.9), at(0.99), ordered[-1])


@dataclass(frozen=True, slots=True)
class NamedPercentiles:
    """Percentiles of the durations of all spans with one name at one node."""

    node: str
    name: str
    durations: Percentiles
    queue: Percentiles | None
    """Percentiles of queueing time, for servers with a queue."""
    forward: Percentiles | None


@dataclass(frozen=True, slots=True)
class PathShare:
    """The part of one activity at one node in the critical paths of all answers."""

    node: str
    part: PathActivity
    ms: Percentiles
    share: float
    """Its share of the total time of all answers, 0 to 1; all shares add up to 1."""


@dataclass(frozen=True, slots=True)
class TraceStats:
    """Statistics over traces."""

    answers: Percentiles
    num_incomplete: int
    path: tuple[PathShare, ...]
    """Parts of the critical path, the largest share first."""
    spans: tuple[NamedPercentiles, ...]
    """Durations of spans, sorted by node and name."""


def trace_stats(traces: Iterable[Trace]) -> TraceStats | None:
    """Compute statistics over ``traces``; None if there are none. Only complete traces count for
    the critical path."""
    totals: list[float] = []
    num_incomplete = 0
    path_ms: dict[tuple[str, PathActivity], list[float]] = defaultdict(list)
    spans: dict[tuple[str, str], list[tuple[float, float | None, float | None]]] = defaultdict(list)
    for trace in traces:
        totals.append(trace.root.duration_ms)
        for span in trace.spans:
            times = (span.duration_ms, span.maybe_number(QUEUE_MS), span.maybe_number(FORWARD_MS))
            spans[span.node.label, span.name].append(times)
        if trace.gaps:
            num_incomplete += 1
            continue
        for key, ms in _path(trace).items():
            path_ms[key].append(ms)
    if not totals:
        return None
    whole_ms = sum(ms for parts in path_ms.values() for ms in parts)
    num_complete = len(totals) - num_incomplete
    path = (_share(key, parts, num_complete, whole_ms) for key, parts in path_ms.items())
    return TraceStats(
        answers=Percentiles.of(totals),
        num_incomplete=num_incomplete,
        path=tuple(sorted(path, key=lambda each: -each.share)),
        spans=tuple(_named(*key, spans[key]) for key in sorted(spans)),
    )


def _path(trace: Trace) -> dict[tuple[str, PathActivity], float]:
    found: dict[tuple[str, PathActivity], float] = defaultdict(float)
    for part in summed(trace.path):
        found[part.node.label, part.part] += part.ms
    return found


def _share(
    key: tuple[str, PathActivity], parts_ms: Sequence[float], num_traces: int, whole_ms: float
) -> PathShare:
    """Compute the share of one part; answers without it count as 0."""
    absent = [0.0] * (num_traces - len(parts_ms))
    share = sum(parts_ms) / whole_ms if whole_ms else 0.0
    return PathShare(*key, Percentiles.of([*parts_ms, *absent]), share)


def _named(
    node: str, name: str, times: Sequence[tuple[float, float | None, float | None]]
) -> NamedPercentiles:
    queue = [queue for _, queue, _ in times if queue is not None]
    forward = [forward for _, _, forward in times if forward is not None]
    return NamedPercentiles(
        node,
        name,
        Percentiles.of([duration for duration, *_ in times]),
        Percentiles.of(queue) if queue else None,
        Percentiles.of(forward) if forward else None,
    )
