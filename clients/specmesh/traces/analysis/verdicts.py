"""The verdicts of calls that bring several of them, each beside the verification that it answers.

A replica goes on after its first verdict, so that a single span of it covers all verdicts of a call
(``VERDICT_SPAN`` are the further ones). At the orchestrator each verification has its own span.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from specmesh.serving.conventions import FURTHER, FURTHER_OF, VERDICT_SPAN
from specmesh.traces.spans import Span, SpanKind


def ended_with_the_first(spans: Sequence[Span]) -> list[Span]:
    """Return ``spans`` with those of whole calls ended with their first verdicts, which the same
    clock has timed."""
    first_ns: dict[str, int] = {}
    for part in spans:
        if part.name == VERDICT_SPAN:
            known_ns = first_ns.get(part.parent_span_id, part.start_ns)
            first_ns[part.parent_span_id] = min(known_ns, part.start_ns)
    return [
        replace(span, end_ns=first_ns[span.span_id]) if span.span_id in first_ns else span
        for span in spans
    ]


def answering(spans: Sequence[Span]) -> list[Span]:
    """Return ``spans``, on one clock, with each further verdict as the answer to its verification:
    a SERVER span below that one's, from when it was asked for, since it had begun before."""
    by_id = {span.span_id: span for span in spans}
    further = [span for span in spans if FURTHER_OF in span.attributes]
    calls = {(span.text(FURTHER_OF), span.number(FURTHER)): span for span in further}

    def answer(part: Span) -> Span:
        whole = by_id.get(part.parent_span_id)
        call = whole and calls.get((whole.parent_span_id, part.number(FURTHER)))
        if call is None:
            return part
        start_ns = min(max(part.start_ns, call.start_ns), part.end_ns)
        return replace(part, kind=SpanKind.SERVER, parent_span_id=call.span_id, start_ns=start_ns)

    return [answer(span) if span.name == VERDICT_SPAN else span for span in spans]
