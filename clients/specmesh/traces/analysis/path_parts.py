"""The critical path by node and activity."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from specmesh.serving.conventions import COMMIT_SPAN, FORWARD_MS, QUEUE_MS
from specmesh.traces.analysis.breakdown import STORE
from specmesh.traces.analysis.completeness import LOST
from specmesh.traces.analysis.critical_path import Segment
from specmesh.traces.spans import Node, Span, SpanKind, servers_of


class PathActivity(StrEnum):
    """The activity in a stretch of the critical path."""

    NETWORK = "network"
    """The way between a call's client and its server: wire, gRPC, both event loops."""
    QUEUE = "queue"
    FORWARD = "forward"
    OWN = "own"
    """Any other work of the node."""
    CORE = "core"
    """The process was ready to run, but waited for a core."""
    STORE = "store"
    """A write to the session store."""
    UNKNOWN = "unknown"
    """The span is missing."""


@dataclass(frozen=True, slots=True)
class PathPart:
    """All stretches of the critical path with the same node, activity and name."""

    node: Node
    part: PathActivity
    name: str
    """The span's name, and the phase of its own time, if known."""
    ms: float


@dataclass(frozen=True, slots=True)
class Stretch:
    """One stretch of the critical path with one activity, in nanoseconds on the root's clock."""

    span: Span
    node: Node
    part: PathActivity
    start_ns: int
    end_ns: int
    name: str
    """The span's name, and the phase of its own time, if known."""

    @property
    def ms(self) -> float:
        """The duration in milliseconds."""
        return (self.end_ns - self.start_ns) / 1e6


def stretches(path: Sequence[Segment], spans: Sequence[Span]) -> list[Stretch]:
    """Return ``path`` from start to end, with servers' time divided into queue, forward and own."""
    servers = servers_of(spans)
    found: list[Stretch] = []
    for segment in reversed(path):
        if segment.span.kind is SpanKind.SERVER and QUEUE_MS in segment.span.attributes:
            found += _served(segment)
        else:
            found += _unserved(segment, servers.get(segment.span.span_id, ()))
    return found


def _name(segment: Segment) -> str:
    return ", ".join(filter(None, (segment.span.name, segment.why)))


def summed(found: Sequence[Stretch]) -> list[PathPart]:
    """Sum up stretches, the longest first; the parts add up to the duration of the answer."""
    totals: dict[tuple[Node, PathActivity, str], float] = defaultdict(float)
    for each in found:
        totals[each.node, each.part, each.name] += each.ms
    parts = [PathPart(*key, ms) for key, ms in totals.items()]
    return sorted(parts, key=lambda part: -part.ms)


def by_service(found: Iterable[Stretch]) -> dict[tuple[str, PathActivity], float]:
    """Sum up milliseconds by service and activity, since it is chance which replica answered."""
    totals: dict[tuple[str, PathActivity], float] = defaultdict(float)
    for each in found:
        service = each.node.service.removeprefix("specmesh-") or each.node.label
        totals[service, each.part] += each.ms
    return totals


def _whose(span: Span, servers: Sequence[Span]) -> tuple[Node, PathActivity]:
    if span.name == LOST:
        return span.node, PathActivity.UNKNOWN
    if span.name == COMMIT_SPAN:
        return STORE, PathActivity.STORE
    if span.kind is SpanKind.CLIENT:
        return (
            (servers[0].node, PathActivity.NETWORK)
            if servers
            else (span.node, PathActivity.NETWORK)
        )
    return span.node, PathActivity.OWN


def _unserved(segment: Segment, servers: Sequence[Span]) -> Iterator[Stretch]:
    """Yield a segment as one stretch, after one for the wait for a core, if any. When within the
    segment that wait occurred is unknown; it is shown first."""
    node, part = _whose(segment.span, servers)
    since_ns = segment.start_ns
    if segment.run_delay_ns > 0:
        since_ns += segment.run_delay_ns
        yield Stretch(
            segment.span, node, PathActivity.CORE, segment.start_ns, since_ns, _name(segment)
        )
    if since_ns < segment.end_ns:
        yield Stretch(segment.span, node, part, since_ns, segment.end_ns, _name(segment))


def _served(segment: Segment) -> Iterator[Stretch]:
    """Yield a server's segment as queue, forward and own.

    A draft computes level by level, with own work in between, which is shown at its end.
    """
    span = segment.span
    computed_ns = span.left_queue_ns + int(span.number(FORWARD_MS) * 1e6)
    marks = (span.start_ns, span.left_queue_ns, computed_ns, max(span.end_ns, segment.end_ns))
    for part, start_ns, end_ns in zip(
        (PathActivity.QUEUE, PathActivity.FORWARD, PathActivity.OWN), marks, marks[1:], strict=False
    ):
        since_ns, until_ns = max(start_ns, segment.start_ns), min(end_ns, segment.end_ns)
        if since_ns < until_ns:
            name = span.name if part is PathActivity.QUEUE else _name(segment)
            yield Stretch(span, span.node, part, since_ns, until_ns, name)
