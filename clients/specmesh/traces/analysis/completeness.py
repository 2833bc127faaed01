"""The spans that a trace has lost: parents that other spans name, and servers of successful calls.

Spans are lost when a process is killed before it exports them, when an exporter's queue is full, or
when a process sends its spans elsewhere. A span that never existed is not counted as missing: a
call that was cancelled or failed may not have reached its server.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from specmesh.serving.conventions import GENERATE_SPAN, RPC_SYSTEM
from specmesh.traces.spans import Node, Span, SpanKind, root_of

LOST = "(lost)"
"""The name of the placeholders of lost spans."""

_NOBODY = Node("", "")


class MissingSpan(Enum):
    """The kind of a missing span."""

    ROOT = "the caller's span above the root"
    PARENT = "a span between the root and others"
    SERVER = "the server's span of a call"


@dataclass(frozen=True, slots=True)
class Gap:
    """One missing span."""

    loss: MissingSpan
    span_id: str
    """Its id; empty for a server's span, whose id no other span names."""
    below: Span | None
    """The known span that is its parent or ancestor: for a server, the call. None if unknown."""
    above: tuple[Span, ...]
    """Its children."""


def gaps(spans: Sequence[Span]) -> list[Gap]:
    """Return the spans that one trace has lost, as far as its other spans tell."""
    return [*_lost_parents(spans), *_lost_servers(spans)] if spans else []


def mended(spans: Sequence[Span], found: Sequence[Gap]) -> list[Span]:
    """Return ``spans`` as one tree. Spans whose parent is missing get a placeholder called
    ``LOST``, which covers their time; its parent is the shortest span that may have contained it.
    """
    lost = [
        _stand_in(spans, gap.span_id, gap.above) for gap in found if gap.loss is MissingSpan.PARENT
    ]
    return [*spans, *lost]


def _stand_in(spans: Sequence[Span], span_id: str, above: Sequence[Span]) -> Span:
    root = root_of(spans)
    node = _node(above)
    start_ns = max(min(span.start_ns for span in above), root.start_ns)
    end_ns = max(span.end_ns for span in above)
    below = _subtree(spans, above)
    around = [
        span
        for span in spans
        if span.kind is not SpanKind.CLIENT
        and span.span_id not in below
        and node in {span.node, _NOBODY}
        and span.start_ns <= start_ns
        and end_ns <= span.end_ns
    ]
    parent = min(around, key=lambda span: span.duration_ms, default=root)
    return Span(
        trace_id=root.trace_id,
        span_id=span_id,
        parent_span_id=parent.span_id,
        name=LOST,
        kind=SpanKind.OTHER,
        node=parent.node if node == _NOBODY else node,
        start_ns=start_ns,
        end_ns=end_ns,
        attributes={},
        is_error=False,
    )


def _subtree(spans: Sequence[Span], tops: Sequence[Span]) -> set[str]:
    """Return the ids of ``tops`` and all their descendants."""
    children: dict[str, list[str]] = defaultdict(list)
    for span in spans:
        children[span.parent_span_id].append(span.span_id)
    found: set[str] = set()
    left = [span.span_id for span in tops]
    while left:
        span_id = left.pop()
        if span_id not in found:
            found.add(span_id)
            left += children[span_id]
    return found


def describe(gap: Gap) -> str:
    """Describe a gap in a few words."""
    match gap.loss:
        case MissingSpan.ROOT:
            return f"1 span missing above {gap.above[0].name}: its caller's"
        case MissingSpan.PARENT:
            named = ", ".join(sorted({span.name for span in gap.above}))
            return f"1 span missing, with its children left: {len(gap.above)} x {named}"
        case MissingSpan.SERVER:
            assert gap.below is not None
            return f"1 span missing below {gap.below.name}: its server's"


def summed_up(found: Sequence[Gap]) -> list[str]:
    """Describe all gaps, with equal ones counted on one line: "3 spans missing below ..."."""
    counts: dict[str, int] = defaultdict(int)
    for gap in found:
        counts[describe(gap)] += 1
    return [
        line if count == 1 else line.replace("1 span", f"{count} spans", 1)
        for line, count in counts.items()
    ]


def _lost_parents(spans: Sequence[Span]) -> Iterator[Gap]:
    known = {span.span_id for span in spans}
    orphans: dict[str, list[Span]] = defaultdict(list)
    for span in spans:
        if span.parent_span_id and span.parent_span_id not in known:
            orphans[span.parent_span_id].append(span)
    root = root_of(spans)
    for parent, children in orphans.items():
        is_root = any(child is root for child in children)
        loss = MissingSpan.ROOT if is_root else MissingSpan.PARENT
        yield Gap(loss, parent, None if is_root else root, tuple(children))


def _lost_servers(spans: Sequence[Span]) -> Iterator[Gap]:
    served = {span.parent_span_id for span in spans if span.kind is SpanKind.SERVER}
    for span in spans:
        if _must_have_arrived(span) and span.span_id not in served:
            yield Gap(MissingSpan.SERVER, "", span, ())


def _must_have_arrived(span: Span) -> bool:
    is_call = span.kind is SpanKind.CLIENT and (
        span.name == GENERATE_SPAN or RPC_SYSTEM in span.attributes
    )
    return is_call and not span.was_cancelled and not span.is_error


def _node(spans: Sequence[Span]) -> Node:
    """Return the node of the lost parent of ``spans``; a server's span does not tell its caller."""
    own = [span.node for span in spans if span.kind is not SpanKind.SERVER]
    return own[0] if own else _NOBODY
