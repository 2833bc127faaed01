"""Many traces copied from a few real ones: other ids and times, the same spans."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from hashlib import blake2b
from itertools import cycle

from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans

from specmesh.traces.spans import spans_from
from specmesh.traces.store.blob import pack
from specmesh.traces.store.stored_trace import StoredTrace
from specmesh.traces.summary import TraceSummary, summarise

_PERIOD_NS = 250_000_000
"""Time between the starts of two traces."""


def multiplied(samples: Sequence[Sequence[ResourceSpans]], num_spans: int) -> Iterator[StoredTrace]:
    """Yield copies of ``samples`` in turn until they have ``num_spans`` in all."""
    known = [(groups, summarise(list(spans_from(groups)))) for groups in samples]
    count = 0
    for number, (groups, summary) in enumerate(cycle(known)):
        if count >= num_spans:
            return
        count += summary.num_spans
        yield _copy(groups, summary, number)


def _copy(groups: Sequence[ResourceSpans], summary: TraceSummary, number: int) -> StoredTrace:
    trace_id = blake2b(number.to_bytes(8), digest_size=16).digest()
    later_ns = number * _PERIOD_NS
    copies = []
    for group in groups:
        copy = ResourceSpans()
        copy.CopyFrom(group)
        for scope in copy.scope_spans:
            for span in scope.spans:
                span.trace_id = trace_id
                span.start_time_unix_nano += later_ns
                span.end_time_unix_nano += later_ns
        copies.append(copy)
    copied = replace(
        summary,
        trace_id=trace_id.hex(),
        start_ns=summary.start_ns + later_ns,
        # Durations vary between copies.
        duration_ms=summary.duration_ms + number % 1009 / 100,
        sessions=tuple(f"{session[:8]}{number}" for session in summary.sessions),
    )
    return StoredTrace(copied, pack(copies))
