"""Chrome's trace events, which Perfetto shows: a process for each node, lanes for its spans.

The format is "Trace Event Format", Google 2016. The spans of one lane must nest; spans that overlap
otherwise need lanes of their own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from specmesh.traces.spans import Span
from specmesh.traces.trace import Trace

_NS_PER_US = 1000


def to_chrome(trace: Trace) -> dict[str, Any]:
    """Return the trace as a JSON object, with times in microseconds since the root began."""
    by_node: dict[str, list[Span]] = defaultdict(list)
    for span in trace.spans:
        by_node[span.node.label].append(span)
    critical = {stretch.span.span_id for stretch in trace.path}
    events: list[dict[str, Any]] = []
    for pid, node in enumerate(sorted(by_node), start=1):
        events.append({"ph": "M", "pid": pid, "name": "process_name", "args": {"name": node}})
        for lane, span in _in_lanes(by_node[node]):
            events.append(_event(span, trace.root.start_ns, pid, lane, span.span_id in critical))
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {"trace_id": trace.summary.trace_id, "missing_spans": len(trace.gaps)},
    }


def _event(span: Span, origin_ns: int, pid: int, lane: int, critical: bool) -> dict[str, Any]:
    told = {key: list(v) if isinstance(v, tuple) else v for key, v in span.attributes.items()}
    return {
        "ph": "X",
        "pid": pid,
        "tid": lane,
        "name": span.name,
        "cat": span.kind.value,
        "ts": (span.start_ns - origin_ns) / _NS_PER_US,
        "dur": (span.end_ns - span.start_ns) / _NS_PER_US,
        "args": {**told, "critical": critical, "span_id": span.span_id},
    }


def _in_lanes(spans: Sequence[Span]) -> Iterator[tuple[int, Span]]:
    """Yield each span with the first lane in which it lies inside all spans that it overlaps."""
    lanes: list[list[int]] = []
    """The ends of the spans open in each lane, the outermost first."""
    for span in sorted(spans, key=lambda span: (span.start_ns, -span.end_ns)):
        for lane, open_ends in enumerate(lanes):
            while open_ends and open_ends[-1] <= span.start_ns:
                open_ends.pop()
            if not open_ends or span.end_ns <= open_ends[-1]:
                open_ends.append(span.end_ns)
                yield lane + 1, span
                break
        else:
            lanes.append([span.end_ns])
            yield len(lanes), span
