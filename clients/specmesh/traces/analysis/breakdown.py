"""The time of one answer, node by node.

There are two measures, because work overlaps. ``busy_ms`` and its parts count all work of a node,
even if nothing waited for it. ``path_ms`` counts only the time that the answer waited for; its sum
over all nodes is the wall time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from specmesh.serving.conventions import COMMIT_SPAN, FORWARD_MS, QUEUE_MS
from specmesh.traces.analysis.critical_path import Segment, critical_path
from specmesh.traces.intervals import Interval, length_ms, union, without
from specmesh.traces.spans import Node, Span, SpanKind, root_of, servers_of

STORE = Node("redis", "")
"""The session store, which sends no spans: its time is that of the commits."""


@dataclass(frozen=True, slots=True)
class NodeTime:
    """The time of one node in milliseconds, summed over its calls unless stated otherwise."""

    node: Node
    num_calls: int
    busy_ms: float
    """Time in which the node itself worked on at least one call; concurrent calls count once."""
    queue_ms: float
    forward_ms: float
    other_ms: float
    """The rest of its own time in the calls, without the calls that it made."""
    hop_ms: float
    """The time its callers waited beyond the calls: network, gRPC, both sides' event loops."""
    path_ms: float
    """Its part of the critical path, including the hops to it."""


@dataclass(frozen=True, slots=True)
class Breakdown:
    """The times of one answer; nodes are in descending order of ``path_ms``."""

    wall_ms: float
    nodes: tuple[NodeTime, ...]

    def share(self, node: NodeTime) -> float:
        """Return the node's share of the wall time, 0 to 1; the shares of all nodes add up to 1, or
        to 0 if the wall time is 0."""
        return node.path_ms / self.wall_ms if self.wall_ms else 0.0


def breakdown(spans: Sequence[Span], path: Sequence[Segment] | None = None) -> Breakdown:
    """Compute the breakdown of one trace, whose spans are on one clock (``clocks.corrected``).
    ``path`` is its critical path, which is computed if None.

    Raises ValueError if ``spans`` is empty or of several traces.
    """
    if len({span.trace_id for span in spans}) != 1:
        raise ValueError("a breakdown needs the spans of exactly one trace")
    calls = _Calls(spans)
    root = root_of(spans)
    path_ms: dict[Node, float] = defaultdict(float)
    for segment in critical_path(root, spans) if path is None else path:
        path_ms[calls.responsible(segment.span)] += (segment.end_ns - segment.start_ns) / 1e6
    nodes = [calls.node_time(node, path_ms[node]) for node in {*calls.by_node, *path_ms}]
    ordered = sorted(nodes, key=lambda node: -node.path_ms)
    return Breakdown(wall_ms=root.duration_ms, nodes=tuple(ordered))


class _Calls:
    """The calls of one trace: those that each node served, and the duration of the hops to it."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self._servers = servers_of(spans)
        self._children: dict[str, list[Span]] = defaultdict(list)
        self._hop_ms: dict[Node, float] = defaultdict(float)
        self.by_node: dict[Node, list[Span]] = defaultdict(list)
        for span in spans:
            self._children[span.parent_span_id].append(span)
            if span.kind is SpanKind.SERVER:
                self.by_node[span.node].append(span)
            elif span.name == COMMIT_SPAN:
                self.by_node[STORE].append(span)
            elif servers := self._servers_of(span):
                # A server's span may outlast a caller that cancelled; a hop is never negative.
                beyond_ms = span.duration_ms - sum(server.duration_ms for server in servers)
                self._hop_ms[servers[0].node] += max(beyond_ms, 0.0)

    def responsible(self, span: Span) -> Node:
        """Return the node responsible for a span's own time: for a call, the one that served it."""
        if span.name == COMMIT_SPAN:
            return STORE
        servers = self._servers_of(span)
        return servers[0].node if servers else span.node

    def node_time(self, node: Node, path_ms: float) -> NodeTime:
        """Sum up the calls that the node served."""
        served = self.by_node.get(node, [])
        own = [self._own(span) for span in served]
        parts = [
            _divided(span, length_ms(intervals))
            for span, intervals in zip(served, own, strict=True)
        ]
        return NodeTime(
            node=node,
            num_calls=len(served),
            busy_ms=length_ms(union(chain.from_iterable(own))),
            queue_ms=sum(queue_ms for queue_ms, _, _ in parts),
            forward_ms=sum(forward_ms for _, forward_ms, _ in parts),
            other_ms=sum(other_ms for _, _, other_ms in parts),
            hop_ms=self._hop_ms.get(node, 0.0),
            path_ms=path_ms,
        )

    def _servers_of(self, span: Span) -> Sequence[Span]:
        """Return the SERVER spans of a call; empty if it was cancelled before it arrived, or if
        ``span`` is not a call."""
        return self._servers.get(span.span_id, ()) if span.kind is SpanKind.CLIENT else ()

    def _own(self, span: Span) -> list[Interval]:
        """Return the intervals in which no call or commit below the span was running."""
        whole = (span.start_ns, span.end_ns)
        away = [(below.start_ns, below.end_ns) for below in self._calls_below(span)]
        return without(whole, away)

    def _calls_below(self, span: Span) -> Iterator[Span]:
        left = [*self._children.get(span.span_id, ())]
        while left:
            child = left.pop()
            if child.kind is SpanKind.CLIENT or child.name == COMMIT_SPAN:
                yield child
            else:
                left += self._children.get(child.span_id, ())


def _divided(span: Span, own_ms: float) -> tuple[float, float, float]:
    """Divide the ``own_ms`` of a span into queue, forward and the rest. The forward of a further
    verdict may have begun before its span, which begins with the verification that it answers."""
    queue_ms = min(span.number(QUEUE_MS), own_ms)
    forward_ms = min(span.number(FORWARD_MS), own_ms - queue_ms)
    return queue_ms, forward_ms, own_ms - queue_ms - forward_ms
