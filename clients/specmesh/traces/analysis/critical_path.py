"""Which span an answer waited for, moment by moment.

Seen from its end, a span has waited for the child that ended last; before that one began,
for the child that had ended last by then; and so on. What no child covers is the span's own.
The parts join without gap or overlap, so that they sum up to the whole, whatever ran
concurrently. (The idea is that of CRISP, Zhang et al., USENIX ATC 2022, which drops a child that
outlasts its successor. Here it counts until the successor begins, since a draft streams on after
the verification that it made possible was sent.)

Two things are better known of specmesh's own spans:

- A round is no step but a stretch between two commits: calls outlast it, and later rounds wait for
  them. So what is below a round counts as if it were directly below the request.
- A call names its cause, the kind of result that the strategy answered with it, how long that
  took, and how much of this the orchestrator waited for a core. So a call is put down to the draft
  that is still streaming, or to the verdict before it, and the reaction to the orchestrator itself.
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
"""Why a request's own time was spent."""

_CAUSES = {
    "drafted": DRAFT_SPAN,
    "verified": VERIFY_SPAN,
    "assessed": ASSESS_SPAN,
    "released": ASSESS_SPAN,
}
"""The span whose result each event is."""
_START = "start"
_STREAMS = frozenset({DRAFT_SPAN, ASSESS_SPAN})
"""Spans that give several results before they end."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of time that belongs to ``span``: nanoseconds since 1970, by the root's clock."""

    span: Span
    start_ns: int
    end_ns: int
    why: str = ""
    """What a span with children did meanwhile, if that is known."""
    run_delay_ns: int = 0
    """Of this time, how long its process waited for a core, if that is known."""


def critical_path(root: Span, spans: Sequence[Span]) -> list[Segment]:
    """The segments from the root's end back to its start; ``spans`` are those of its trace, by one
    clock (``clocks.corrected``)."""
    return list(_walk(root, root.start_ns, root.end_ns, _Waits(_children(spans))))


def _children(spans: Sequence[Span]) -> Mapping[str, Sequence[Span]]:
    """By the parent's id, without rounds."""
    rounds = {span.span_id: span.parent_span_id for span in spans if span.name == ROUND_SPAN}
    children: dict[str, list[Span]] = defaultdict(list)
    for span in spans:
        if span.name != ROUND_SPAN:
            parent = rounds.get(span.parent_span_id, span.parent_span_id)
            children[parent].append(span)
    return children


class _InOrder:
    """Spans by their start and by their end, to be found by moment."""

    def __init__(self, spans: Iterable[Span]) -> None:
        lasting = [span for span in spans if span.start_ns < span.end_ns]
        self._by_start = sorted(lasting, key=lambda span: span.start_ns)
        self._by_end = sorted(lasting, key=lambda span: (span.end_ns, span.start_ns))
        self._starts = [span.start_ns for span in self._by_start]
        self._ends = [span.end_ns for span in self._by_end]

    def last_ended(self, by_ns: int) -> Span | None:
        """The one that ended last, at ``by_ns`` or before."""
        index = bisect_right(self._ends, by_ns)
        return self._by_end[index - 1] if index else None

    def next_to_end(self, now: int) -> Span | None:
        """Of those under way, the one that ends first."""
        after = islice(self._by_end, bisect_right(self._ends, now), None)
        return next((span for span in after if span.start_ns < now), None)

    def latest_running(self, now: int) -> Span | None:
        """Of those under way, the one that began last."""
        for index in range(bisect_left(self._starts, now) - 1, -1, -1):
            if self._by_start[index].end_ns > now:
                return self._by_start[index]
        return None


class _Below:
    """The children of a span, as far as it may have waited for them."""

    def __init__(self, children: Sequence[Span]) -> None:
        self.are_calls = any(CAUSE in child.attributes for child in children)
        if not self.are_calls:
            self._all = _InOrder(children)
            return
        # Work that was cancelled may end last, but nobody needed it. Drafts are cancelled once they
        # are long enough: what had come of them by then was needed.
        needed = [c for c in children if not c.was_cancelled and c.name != CANCEL_SPAN]
        self._all = _InOrder(needed)
        self._calls = _InOrder(c for c in needed if c.name in _CAUSES.values())
        self._named = {
            name: _InOrder(c for c in (children if name in _STREAMS else needed) if c.name == name)
            for name in set(_CAUSES.values())
        }

    def before(self, after: Span | None, start_ns: int, now: int) -> tuple[Span | None, int, int]:
        """The child that was waited for before ``now``, when ``after`` began (None: not known);
        until when, for from there on the time is the span's own; and since when."""
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
        # A verdict ends its call; a draft streams on, and the latest to begin is the one in use.
        running = self._named[name].latest_running(decided_ns) if name in _STREAMS else None
        if running is not None:
            return running, decided_ns, max(running.start_ns, start_ns)
        ended = self._named[name].last_ended(decided_ns) if name else None
        if ended is not None:
            return _ended(ended, start_ns)
        # Another event, such as a replica that came, or one whose span is lost.
        return self._waited_for(start_ns, decided_ns)

    def _waited_for(self, start_ns: int, now: int) -> tuple[Span | None, int, int]:
        last = self._all.last_ended(now)
        if last is not None and last.end_ns == now:
            return _ended(last, start_ns)
        floor_ns = start_ns if last is None else max(last.end_ns, start_ns)
        # The one that ends first is the likeliest to have made the next step possible.
        running = self._all.next_to_end(now)
        if running is not None:
            return running, now, max(running.start_ns, floor_ns)
        return None, floor_ns, floor_ns


def _ended(child: Span | None, start_ns: int) -> tuple[Span | None, int, int]:
    """``child`` until its end; the span itself from its start on if there is none by then."""
    if child is None or child.end_ns <= start_ns:
        return None, start_ns, start_ns
    return child, child.end_ns, max(child.start_ns, start_ns)


class _Waits:
    """What each span may have waited for; looked into only where the path goes."""

    def __init__(self, children: Mapping[str, Sequence[Span]]) -> None:
        self._children = children
        self._below: dict[str, _Below] = {}

    def of(self, span: Span) -> _Below | None:
        """The span's children; None if it has none."""
        found = self._below.get(span.span_id)
        if found is None and span.span_id in self._children:
            found = self._below[span.span_id] = _Below(self._children[span.span_id])
        return found


def _walk(span: Span, start_ns: int, end_ns: int, waits: _Waits) -> Iterator[Segment]:
    """Divide a span's time between ``start_ns`` and ``end_ns`` among segments, backwards."""
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
            yield from _walk(child, floor_ns, reached_ns, waits)
        # Only its beginning has a cause.
        after = child if child is not None and child.start_ns == floor_ns else None
        now = floor_ns
