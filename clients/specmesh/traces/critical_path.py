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
- A call names its cause, the kind of result that the strategy answered with it, and how long that
  took. So a call is put down to the draft that is still streaming, or to the verdict before it,
  and the reaction to the orchestrator itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from specmesh.serving.conventions import (
    ASSESS_SPAN,
    CAUSE,
    COMMIT_SPAN,
    DRAFT_SPAN,
    REACTION_MS,
    ROUND_SPAN,
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


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of time that belongs to ``span``: nanoseconds since 1970, by the root's clock."""

    span: Span
    start_ns: int
    end_ns: int
    why: str = ""
    """What a span with children did meanwhile, if that is known."""


def critical_path(root: Span, spans: Sequence[Span]) -> list[Segment]:
    """The segments from the root's end back to its start; ``spans`` are those of its trace, by one
    clock (``clocks.corrected``)."""
    return list(_walk(root, root.start_ns, root.end_ns, _children(spans)))


def _children(spans: Sequence[Span]) -> Mapping[str, Sequence[Span]]:
    """By the parent's id, without rounds."""
    rounds = {span.span_id: span.parent_span_id for span in spans if span.name == ROUND_SPAN}
    children: dict[str, list[Span]] = defaultdict(list)
    for span in spans:
        if span.name != ROUND_SPAN:
            parent = rounds.get(span.parent_span_id, span.parent_span_id)
            children[parent].append(span)
    return children


def _walk(
    span: Span, start_ns: int, end_ns: int, children: Mapping[str, Sequence[Span]]
) -> Iterator[Segment]:
    """Divide a span's time between ``start_ns`` and ``end_ns`` among segments, backwards."""
    below = children.get(span.span_id, ())
    has_calls = any(CAUSE in child.attributes for child in below)
    after: Span | None = None
    now = end_ns
    while now > start_ns:
        child, reached_ns, floor_ns = _before(after, below, start_ns, now)
        if reached_ns < now:
            at_first = child is None and floor_ns == start_ns
            why = BEGIN if at_first else END if after is None else REACT
            yield Segment(span, reached_ns, now, why if has_calls else "")
        if child is not None:
            yield from _walk(child, floor_ns, reached_ns, children)
        # Only its beginning has a cause.
        after = child if child is not None and child.start_ns == floor_ns else None
        now = floor_ns


def _before(
    after: Span | None, children: Sequence[Span], start_ns: int, now: int
) -> tuple[Span | None, int, int]:
    """The child that was waited for before ``now``, when ``after`` began (None: the span's end);
    until when, from there on the time is the span's own; and since when. None: no child."""
    if after is not None and (after.name == COMMIT_SPAN or CAUSE in after.attributes):
        return _cause_of(after, children, start_ns, now)
    child, floor_ns = _waited_for(children, start_ns, now)
    return (None, floor_ns, floor_ns) if child is None else (child, now, floor_ns)


def _cause_of(
    call: Span, children: Sequence[Span], start_ns: int, now: int
) -> tuple[Span | None, int, int]:
    """As ``_before``, by what a call says of its cause; a commit's is the call that ended last."""
    decided_ns = max(now - int(call.number(REACTION_MS) * 1e6), start_ns)
    wanted = _CAUSES.get(call.text(CAUSE))
    if call.name == COMMIT_SPAN:
        named = [child for child in children if child.name in _CAUSES.values()]
    else:
        named = [child for child in children if child.name == wanted]
    begun = [child for child in named if child.start_ns < decided_ns]
    # A verdict ends its call; a draft streams on, and the latest to begin is the one in use.
    streams = wanted in {DRAFT_SPAN, ASSESS_SPAN}
    running = [child for child in begun if child.end_ns > decided_ns] if streams else []
    if running:
        cause = max(running, key=lambda child: child.start_ns)
        return cause, decided_ns, max(cause.start_ns, start_ns)
    ended = [c for c in begun if c.end_ns <= now and (streams or not c.was_cancelled)]
    if not ended:
        return None, start_ns, start_ns
    cause = max(ended, key=lambda child: child.end_ns)
    return cause, min(cause.end_ns, decided_ns), max(cause.start_ns, start_ns)


def _waited_for(children: Sequence[Span], start_ns: int, now: int) -> tuple[Span | None, int]:
    """The child the span waited for just before ``now`` (None: itself), and since when."""
    begun = [child for child in children if child.start_ns < min(now, child.end_ns)]
    running = [child for child in begun if child.end_ns > now]
    last = max(
        (child for child in begun if child.end_ns <= now),
        key=lambda child: (child.end_ns, child.start_ns),
        default=None,
    )
    if last is not None and last.end_ns == now:
        return last, max(last.start_ns, start_ns)
    floor_ns = start_ns if last is None else max(last.end_ns, start_ns)
    if running:
        # The one that ends first is the likeliest to have made the next step possible.
        next_to_end = min(running, key=lambda child: child.end_ns)
        return next_to_end, max(next_to_end.start_ns, floor_ns)
    return None, floor_ns
