"""Which span an answer waited for, moment by moment.

Seen from its end, a span has waited for the child that ended last; before that one began,
for the child that had ended last by then; and so on. What no child covers is the span's own.
The parts join without gap or overlap, so that they sum up to the whole, whatever ran
concurrently. (The idea is that of CRISP, Zhang et al., USENIX ATC 2022, which drops a child that
outlasts its successor. Here it counts until the successor begins, since a draft streams on after
the verification that it made possible was sent.)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from specmesh.traces.spans import Span


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of time that belongs to ``span``: nanoseconds since 1970, by the root's clock."""

    span: Span
    start_ns: int
    end_ns: int


def critical_path(root: Span, spans: Sequence[Span]) -> list[Segment]:
    """The segments from the root's end back to its start; ``spans`` are those of its trace, by one
    clock (``clocks.corrected``)."""
    children: dict[str, list[Span]] = defaultdict(list)
    for span in spans:
        children[span.parent_span_id].append(span)
    return list(_walk(root, root.start_ns, root.end_ns, children))


def _walk(
    span: Span, start_ns: int, end_ns: int, children: Mapping[str, Sequence[Span]]
) -> Iterator[Segment]:
    """Divide a span's time between ``start_ns`` and ``end_ns`` among segments, backwards."""
    below = children.get(span.span_id, ())
    now = end_ns
    while now > start_ns:
        child, floor_ns = _waited_for(below, start_ns, now)
        if child is None:
            yield Segment(span, floor_ns, now)
        else:
            yield from _walk(child, floor_ns, now, children)
        now = floor_ns


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
