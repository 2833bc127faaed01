"""The time until work stops after a rejection has made it useless.

Each ``specmesh.cancel`` span begins with the orchestrator's decision. A server ends the span of a
cancelled call only when its work has left its slot, so the last of these ends tells when the mesh
is free again. Times are compared across processes, so their clocks must agree; on one machine they
are the same clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median, quantiles

from specmesh.serving.conventions import CANCEL_SPAN, DRAFT_SPAN, VERIFY_SPAN
from specmesh.traces.spans import Span, SpanKind, by_trace, servers_of


@dataclass(frozen=True, slots=True)
class CancelledCalls:
    """One decision to cancel calls, and the times until they stopped."""

    start_ns: int
    calls: tuple[Span, ...]
    """The CLIENT spans of the cancelled calls, at least one."""
    ended_ms: float
    """Time from the decision until the last of the calls ended at the orchestrator."""
    stopped_ms: float
    """Time from the decision until the last server had stopped working on them, too."""


@dataclass(frozen=True, slots=True)
class StopTimes:
    """Percentiles over several cancellations, in milliseconds."""

    p50_ms: float
    p99_ms: float
    orchestrator_p50_ms: float
    """The time that the orchestrator itself sees, until its calls ended."""
    orchestrator_p99_ms: float
    count: int


def cancellations(spans: Iterable[Span]) -> list[CancelledCalls]:
    """Return all cancellations in the traces that cancelled at least one running call."""
    return [found for trace in by_trace(spans) for found in _in_trace(trace)]


def stop_times(found: Sequence[CancelledCalls]) -> StopTimes | None:
    """Compute percentiles over ``found``; None if it is empty."""
    if not found:
        return None
    stopped = [each.stopped_ms for each in found]
    ended = [each.ended_ms for each in found]
    return StopTimes(median(stopped), _p99(stopped), median(ended), _p99(ended), len(found))


def _in_trace(trace: Sequence[Span]) -> Iterator[CancelledCalls]:
    servers = servers_of(trace)
    cancelled = [
        span
        for span in trace
        if span.kind is SpanKind.CLIENT
        and span.name in {DRAFT_SPAN, VERIFY_SPAN}
        and span.was_cancelled
    ]
    for cancel in (span for span in trace if span.name == CANCEL_SPAN):
        # The span lasts until all the calls that it cancels have ended.
        calls = tuple(
            call
            for call in cancelled
            if call.start_ns <= cancel.start_ns <= call.end_ns <= cancel.end_ns
        )
        if calls:
            ends = [call.end_ns for call in calls]
            stops = [span.end_ns for call in calls for span in servers.get(call.span_id, ())]
            yield CancelledCalls(
                start_ns=cancel.start_ns,
                calls=calls,
                ended_ms=(max(ends) - cancel.start_ns) / 1e6,
                stopped_ms=(max(ends + stops) - cancel.start_ns) / 1e6,
            )


def _p99(values: Sequence[float]) -> float:
    return quantiles(values, n=100, method="inclusive")[-1] if len(values) > 1 else values[0]
