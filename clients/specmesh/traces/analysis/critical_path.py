"""The critical path of an answer: the span that it waited for at each moment.

Seen from its end, a span waited for the child that ended last; before that child began, for the
child that had ended last by then; and so on. Time that no child covers is the span's own. The
segments join without gaps or overlaps, so they add up to the whole duration, even if work ran
concurrently. (The idea is that of CRISP, Zhang et al., USENIX ATC 2022, which drops a child that
outlasts its successor. Here it counts until the successor begins, since a draft keeps streaming
after the verification that it made possible was sent.)

Two more facts are known about specmesh's own spans:

- A round is not a step but the time between two commits: calls outlast it, and later rounds wait
  for them. So the children of a round count as children of the request.
- A call records its cause (the kind of result to which the strategy reacted with it), the reaction
  time, and how much of that time the orchestrator waited for a core. So the time before a call is
  attributed to the draft that is still streaming or to the verdict before it, and the reaction to
  the orchestrator itself.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from specmesh.serving.conventions import (
    ASSESS_SPAN,
    CANCEL_SPAN,
    CAUSE,
    COMMIT_SPAN,
    DRAFT_SPAN,
    REACTION_MS,
    ROUND_SPAN,
    RUN_DELAY_MS,
    VERIFY_SPAN,
)
from specmesh.traces.spans import Span

BEGIN = "before the first call"
REACT = "from a result to the next call"
END = "after the last call"
"""Phases of a request's own time."""

_CAUSES = {
    "drafted": DRAFT_SPAN,
    "verified": VERIFY_SPAN,
    "assessed": ASSESS_SPAN,
    "released": ASSESS_SPAN,
}
"""The name of the span that yields each kind of result."""
_START = "start"
_STREAMS = frozenset({DRAFT_SPAN, ASSESS_SPAN})
"""Spans that yield several results before they end."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A time segment that belongs to ``span``, in nanoseconds since 1970 on the root's clock."""

    span: Span
    start_ns: int
    end_ns: int
    why: str = ""
    """The phase of a span with children, if known."""
    run_delay_ns: int = 0
    """The part of this time that its process waited for a core, if known."""


def critical_path(root: Span, spans: Sequence[Span]) -> list[Segment]:
    """Return the segments from the root's end back to its start. ``spans`` are those of its trace,
    on one clock (``clocks.corrected``)."""
    return list(_walk(root, _Waits(_children(spans))))


def _children(spans: Sequence[Span]) -> Mapping[str, Sequence[Span]]:
    """Return the children of each span by its id, with rounds replaced by their children."""
    rounds = {span.span_id: span.parent_span_id for span in spans if span.name == ROUND_SPAN}
    children: dict[str, list[Span]] = defaultdict(list)
    for span in spans:
        if span.name != ROUND_SPAN:
            parent = rounds.get(span.parent_span_id, span.parent_span_id)
            children[parent].append(span)
    return children


class _InOrder:
    """Spans sorted by start and by end, for lookup by time."""

    def __init__(self, spans: Iterable[Span]) -> None:
        lasting = [span for span in spans if span.start_ns < span.end_ns]
        self._by_start = sorted(lasting, key=lambda span: span.start_ns)
        self._by_end = sorted(lasting, key=lambda span: (span.end_ns, span.start_ns))
        self._starts = [span.start_ns for span in self._by_start]
        self._ends = [span.end_ns for span in self._by_end]

    def last_ended(self, by_ns: int) -> Span | None:
        """Return the span that ended last, at ``by_ns`` or before."""
        index = bisect_right(self._ends, by_ns)
        return self._by_end[index - 1] if index else None

    def next_to_end(self, now: int) -> Span | None:
        """Return the span running at ``now`` that ends first."""
        after = islice(self._by_end, bisect_right(self._ends, now), None)
        return next((span for span in after if span.start_ns < now), None)

    def latest_running(self, now: int) -> Span | None:
        """Return the span running at ``now`` that began last."""
        for index in range(bisect_left(self._starts, now) - 1, -1, -1):
            if self._by_start[index].end_ns > now:
                return self._by_start[index]
        return None


class _Below:
    """The children of a span for which it may have waited."""

    def __init__(self, children: Sequence[Span]) -> None:
        self.are_calls = any(CAUSE in child.attributes for child in children)
        if not self.are_calls:
            self._all = _InOrder(children)
            return
        # Cancelled work may end last, but nothing waited for it. Drafts are an exception: they are
        # cancelled once they are long enough, and the tokens drafted before that were needed.
        needed = [c for c in children if not c.was_cancelled and c.name != CANCEL_SPAN]
        self._all = _InOrder(needed)
        self._calls = _InOrder(c for c in needed if c.name in _CAUSES.values())
        self._named = {
            name: _InOrder(c for c in (children if name in _STREAMS else needed) if c.name == name)
            for name in set(_CAUSES.values())
        }

    def before(self, after: Span | None, start_ns: int, now: int) -> tuple[Span | None, int, int]:
        """Return the child that the span waited for before ``now``, when ``after`` began (None if
        unknown); the end of that wait, after which the time is the span's own; and its start."""
        if after is not None and CAUSE in after.attributes:
            decided_ns = max(now - int(after.number(REACTION_MS) * 1e6), start_ns)
            return self._cause(after.text(CAUSE), decided_ns, start_ns)
        if after is not None and after.name == COMMIT_SPAN and self.are_calls:
            return _ended(self._calls.last_ended(now), start_ns)
        return self._waited_for(start_ns, now)

    def _cause(self, event: str, decided_ns: int, start_ns: int) -> tuple[Span | None, int, int]:
        if event == _START:
            return None, start_ns, start_ns
        name = _CAUSES.get(event, "")
        # A verdict ends its call, but a draft keeps streaming; the latest one begun is in use.
        running = self._named[name].latest_running(decided_ns) if name in _STREAMS else None
        if running is not None:
            return running, decided_ns, max(running.start_ns, start_ns)
        ended = self._named[name].last_ended(decided_ns) if name else None
        if ended is not None:
            return _ended(ended, start_ns)
        # Another event, such as a replica that became available, or one whose span is lost.
        return self._waited_for(start_ns, decided_ns)

    def _waited_for(self, start_ns: int, now: int) -> tuple[Span | None, int, int]:
        last = self._all.last_ended(now)
        if last is not None and last.end_ns == now:
            return _ended(last, start_ns)
        floor_ns = start_ns if last is None else max(last.end_ns, start_ns)
        # The one that ends first most likely made the next step possible.
        running = self._all.next_to_end(now)
        if running is not None:
            return running, now, max(running.start_ns, floor_ns)
        return None, floor_ns, floor_ns


def _ended(child: Span | None, start_ns: int) -> tuple[Span | None, int, int]:
    """Return ``child`` and its interval, cut at ``start_ns``; no child if none ended after that."""
    if child is None or child.end_ns <= start_ns:
        return None, start_ns, start_ns
    return child, child.end_ns, max(child.start_ns, start_ns)


class _Waits:
    """The children that each span may have waited for, prepared only where the path goes."""

    def __init__(self, children: Mapping[str, Sequence[Span]]) -> None:
        self._children = children
        self._below: dict[str, _Below] = {}

    def of(self, span: Span) -> _Below | None:
        """Return the span's children; None if it has none."""
        found = self._below.get(span.span_id)
        if found is None and span.span_id in self._children:
            found = self._below[span.span_id] = _Below(self._children[span.span_id])
        return found


def _walk(root: Span, waits: _Waits) -> Iterator[Segment]:
    """Divide a span's time into segments, backwards; spans may be nested to any depth."""
    within = [_divided(root, root.start_ns, root.end_ns, waits)]
    while within:
        part = next(within[-1], None)
        if part is None:
            within.pop()
        elif isinstance(part, Segment):
            yield part
        else:
            within.append(_divided(*part, waits))


def _divided(
    span: Span, start_ns: int, end_ns: int, waits: _Waits
) -> Iterator[Segment | tuple[Span, int, int]]:
    """Divide a span's time between ``start_ns`` and ``end_ns``, backwards, into its own segments
    and the parts of its children, each with its start and its end."""
    below = waits.of(span)
    if below is None:
        if start_ns < end_ns:
            yield Segment(span, start_ns, end_ns)
        return
    after: Span | None = None
    now = end_ns
    while now > start_ns:
        child, reached_ns, floor_ns = below.before(after, start_ns, now)
        if reached_ns < now:
            at_first = child is None and floor_ns == start_ns
            why = BEGIN if at_first else END if after is None else REACT
            delay_ns = int(after.number(RUN_DELAY_MS) * 1e6) if after is not None else 0
            yield Segment(
                *(span, reached_ns, now, why if below.are_calls else ""),
                run_delay_ns=min(delay_ns, now - reached_ns),
            )
        if child is not None:
            yield child, floor_ns, reached_ns
        # The recorded cause is that of the child's start, so it holds only if we got there.
        after = child if child is not None and child.start_ns == floor_ns else None
        now = floor_ns
