"""Clock correction, which puts the spans of different machines on one clock.

A call's server begins after its client, and its client ends after the server's work. Each call
thus bounds the offset of the two clocks (Cristian 1989 bounds it by one round trip; here all calls
of a trace bound it together). If the bounds allow an offset of 0, it is assumed; otherwise the
middle of the bounds is used, and half their distance is the uncertainty.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from specmesh.serving.conventions import CANCEL_SPAN, FORWARD_MS
from specmesh.traces.spans import Node, Span, SpanKind, root_of, servers_of


@dataclass(frozen=True, slots=True)
class ClockCorrection:
    """The offset that was added to the times of a node's spans, in milliseconds, to put them on the
    root's clock."""

    node: Node
    offset_ms: float
    uncertainty_ms: float | None
    """Largest distance to the true offset in either direction; None if the calls bound it on one
    side only. If the calls contradict each other,
    as when a clock was set meanwhile, it is the size of the contradiction."""
    contradictory: bool


@dataclass(frozen=True, slots=True)
class _Bounds:
    """Bounds of the offset that must be added to a server's times to put them on its client's
    clock, in nanoseconds."""

    low: float = float("-inf")
    high: float = float("inf")

    def both(self, other: _Bounds) -> _Bounds:
        return _Bounds(max(self.low, other.low), min(self.high, other.high))

    @property
    def offset_ns(self) -> int:
        if self.low <= 0 <= self.high:
            return 0
        # With only one bound, take the smallest correction that satisfies it.
        if self.high == float("inf"):
            return int(self.low)
        return int(self.low + self.high) // 2

    @property
    def uncertainty_ms(self) -> float:
        return abs(self.high - self.low) / 2e6


def corrected(spans: Sequence[Span]) -> tuple[list[Span], list[ClockCorrection]]:
    """Return the spans of one trace on its root's clock, and the corrections; nodes whose clock
    agrees with the root's, as far as their calls tell, have none."""
    found = list(_corrections(root_of(spans).node, _bounds(spans)))
    offsets = {each.node: int(each.offset_ms * 1e6) for each in found}
    return [_shifted(span, offsets.get(span.node, 0)) for span in spans], found


def _shifted(span: Span, offset_ns: int) -> Span:
    if not offset_ns:
        return span
    return replace(span, start_ns=span.start_ns + offset_ns, end_ns=span.end_ns + offset_ns)


def _corrections(
    root: Node, bounds: Mapping[Node, Mapping[Node, _Bounds]]
) -> Iterator[ClockCorrection]:
    """Yield corrections breadth-first along the calls, beginning at the root's node."""
    known = {root: ClockCorrection(root, 0.0, 0.0, contradictory=False)}
    reached = deque([root])
    while reached:
        caller = known[reached.popleft()]
        for callee, bound in bounds.get(caller.node, {}).items():
            if callee in known:
                continue
            own_ns = bound.offset_ns
            own_ms = bound.uncertainty_ms if own_ns else 0.0
            open_ended = caller.uncertainty_ms is None or math.isinf(own_ms)
            found = ClockCorrection(
                node=callee,
                offset_ms=caller.offset_ms + own_ns / 1e6,
                uncertainty_ms=None if open_ended else (caller.uncertainty_ms or 0.0) + own_ms,
                contradictory=caller.contradictory or bound.low > bound.high,
            )
            known[callee] = found
            reached.append(callee)
            if found.offset_ms:
                yield found


def _bounds(spans: Sequence[Span]) -> Mapping[Node, Mapping[Node, _Bounds]]:
    """Return the bounds by the client's node and the server's."""
    servers = servers_of(spans)
    done = _ends_of_children(spans)
    found: dict[Node, dict[Node, _Bounds]] = defaultdict(dict)
    for call in spans:
        if call.kind is not SpanKind.CLIENT:
            continue
        for server in servers.get(call.span_id, ()):
            if server.node != call.node:
                pair = found[call.node]
                known = pair.get(server.node, _Bounds())
                pair[server.node] = known.both(_bounds_of(call, server, done))
    return found


def _bounds_of(call: Span, server: Span, done: Mapping[str, int]) -> _Bounds:
    low = call.start_ns - server.start_ns
    if call.was_cancelled or server.was_cancelled or call.is_error:
        return _Bounds(low=low)  # the server may have ended later than its client
    # Don't use the server's own end: it may come after its response has been sent.
    computed_ns = server.left_queue_ns + int(server.number(FORWARD_MS) * 1e6)
    over_ns = max(computed_ns, done.get(server.span_id, 0))
    return _Bounds(low=low, high=call.end_ns - min(over_ns, server.end_ns))


def _ends_of_children(spans: Sequence[Span]) -> Mapping[str, int]:
    """Return the end of the last child in the same process, by the parent's id."""
    by_id = {span.span_id: span for span in spans}
    ends: dict[str, int] = defaultdict(int)
    for span in spans:
        parent = by_id.get(span.parent_span_id)
        if parent is not None and parent.node == span.node and span.name != CANCEL_SPAN:
            ends[parent.span_id] = max(ends[parent.span_id], span.end_ns)
    return ends
