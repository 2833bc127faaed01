"""The work of each server on one answer, as bars and marks on one time axis.

Times of different processes are used as they are, so their clocks must agree.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from specmesh.serving.conventions import (
    ACCEPTED,
    COMMITTED,
    DRAFT_SPAN,
    DRAFT_TOKENS,
    ROUND_SPAN,
    VERIFY_SPAN,
)
from specmesh.traces.analysis.cancellation import cancellations
from specmesh.traces.spans import Node, Span, SpanKind, root_of, servers_of


@dataclass(frozen=True, slots=True)
class Bar:
    """One call running on a server after it left the queue, in nanoseconds since 1970."""

    start_ns: int
    end_ns: int
    cancelled: bool


@dataclass(frozen=True, slots=True)
class Row:
    """The calls that one server ran, in order of start."""

    node: Node
    what: str
    """DRAFT_SPAN or VERIFY_SPAN."""
    bars: tuple[Bar, ...]


@dataclass(frozen=True, slots=True)
class Committed:
    """A commit of tokens to the answer."""

    at_ns: int
    num_tokens: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """The timeline of an answer, or of a part of it."""

    answer_start_ns: int
    start_ns: int
    end_ns: int
    rows: tuple[Row, ...]
    """The verifiers, then the drafters."""
    commits: tuple[Committed, ...]
    rejections_ns: tuple[int, ...]
    """The times at which a draft token was rejected."""

    def between(self, start_ns: int, end_ns: int) -> Timeline:
        """Return the part from ``start_ns`` up to ``end_ns``; bars are not cut."""
        return Timeline(
            answer_start_ns=self.answer_start_ns,
            start_ns=start_ns,
            end_ns=end_ns,
            rows=tuple(
                Row(
                    row.node,
                    row.what,
                    tuple(b for b in row.bars if b.start_ns < end_ns and b.end_ns > start_ns),
                )
                for row in self.rows
            ),
            commits=tuple(c for c in self.commits if start_ns <= c.at_ns < end_ns),
            rejections_ns=tuple(at for at in self.rejections_ns if start_ns <= at < end_ns),
        )

    def busiest(self, length_ms: float) -> Timeline:
        """Return the part of that length in which most servers work and, of several, the one with
        most rejections, cancellations and commits.

        It begins with a commit. If the timeline is shorter, it is returned whole.
        """
        length_ns = int(length_ms * 1e6)
        starts = [c.at_ns for c in self.commits if c.at_ns + length_ns <= self.end_ns]
        stretches = (self.between(start_ns, start_ns + length_ns) for start_ns in starts)
        return max(stretches, key=_liveliness, default=self)


def timeline(trace: Sequence[Span]) -> Timeline:
    """Build the timeline of one trace, from the first draft or verification on."""
    rows = tuple(_rows(trace))
    begun = [bar.start_ns for row in rows for bar in row.bars]
    root = root_of(trace)
    return Timeline(
        answer_start_ns=root.start_ns,
        start_ns=min(begun, default=root.start_ns),
        end_ns=root.end_ns,
        rows=rows,
        commits=tuple(
            Committed(span.end_ns, int(span.number(COMMITTED)))
            for span in sorted(trace, key=lambda span: span.end_ns)
            if span.name == ROUND_SPAN and COMMITTED in span.attributes
        ),
        rejections_ns=tuple(sorted(_rejections(trace))),
    )


def _rows(trace: Sequence[Span]) -> Iterator[Row]:
    servers = servers_of(trace)
    for what in (VERIFY_SPAN, DRAFT_SPAN):
        bars: dict[Node, list[Bar]] = defaultdict(list)
        for call in trace:
            if call.name == what and call.kind is SpanKind.CLIENT:
                for span in servers.get(call.span_id, ()):
                    bar = Bar(span.left_queue_ns, span.end_ns, call.was_cancelled)
                    bars[span.node].append(bar)
        for node in sorted(bars, key=lambda node: node.instance):
            yield Row(node, what, tuple(sorted(bars[node], key=lambda bar: bar.start_ns)))


def _rejections(trace: Sequence[Span]) -> Iterator[int]:
    """Yield the times of rejections: verdicts that accept fewer tokens than were drafted, and
    verdicts that end a draft because the draft token after the verified ones is wrong."""
    verdicts = [span for span in trace if span.name == VERIFY_SPAN and ACCEPTED in span.attributes]
    for verdict in verdicts:
        if verdict.number(ACCEPTED) < verdict.number(DRAFT_TOKENS):
            yield verdict.end_ns
    commits = sorted(span.end_ns for span in trace if span.name == ROUND_SPAN)
    for each in cancellations(trace):
        # A draft may also be cancelled because it is long enough. Then a verification follows,
        # whose verdict is the next to be committed.
        committed_ns = next((at for at in commits if at >= each.start_ns), each.start_ns)
        decided_before = not any(each.start_ns < v.end_ns <= committed_ns for v in verdicts)
        if decided_before and any(call.name == DRAFT_SPAN for call in each.calls):
            yield each.start_ns


def _liveliness(stretch: Timeline) -> tuple[int, int]:
    """Return the number of servers that work, and that of events."""
    num_cancelled = sum(bar.cancelled for row in stretch.rows for bar in row.bars)
    num_events = num_cancelled + len(stretch.rejections_ns) + len(stretch.commits)
    return sum(bool(row.bars) for row in stretch.rows), num_events
