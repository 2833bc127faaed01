"""The numbers of tokens, made unique in a trace.

Each stream of an orchestrator begins with 1, and a trace has several streams where a request has
several answers or an answer was resumed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from specmesh.serving.conventions import COMMITTED_NODES, TREE_NODES, TREE_PARENTS
from specmesh.traces.spans import Span, SpanKind

_NUMBERS = (TREE_NODES, TREE_PARENTS, COMMITTED_NODES)


def streams(spans: Sequence[Span]) -> list[list[Span]]:
    """Return the spans that number tokens, in order of start, by the stream that they are of. The
    spans must be a tree."""
    by_id = {span.span_id: span for span in spans}

    def stream(span: Span) -> str:
        while (parent := by_id.get(span.parent_span_id)) and parent.kind is not SpanKind.SERVER:
            span = parent
        return parent.span_id if parent else ""

    found: dict[str, list[Span]] = {}
    for span in sorted(spans, key=lambda span: span.start_ns):
        if any(name in span.attributes for name in _NUMBERS):
            found.setdefault(stream(span), []).append(span)
    return list(found.values())


def numbered_apart(spans: Sequence[Span]) -> list[Span]:
    """Return ``spans`` with the tokens of each stream numbered after those of earlier ones."""
    changed: dict[str, Span] = {}
    num_before = 0
    for stream in streams(spans):
        told = {span.span_id: _numbers(span) for span in stream}
        for span in stream if num_before else ():
            # The beginning of the answer, 0, is nobody's.
            moved = {
                name: tuple(number and number + num_before for number in numbers)
                for name, numbers in told[span.span_id].items()
            }
            changed[span.span_id] = replace(span, attributes={**span.attributes, **moved})
        each = (numbers for by_name in told.values() for numbers in by_name.values())
        num_before += max((number for numbers in each for number in numbers), default=0)
    return [changed.get(span.span_id, span) for span in spans]


def _numbers(span: Span) -> dict[str, Sequence[int]]:
    return {name: span.numbers(name) for name in _NUMBERS if name in span.attributes}
