"""What a list of traces shows of one: computed once, when it is stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from specmesh.serving import conventions as names
from specmesh.traces.analysis.completeness import gaps
from specmesh.traces.spans import Span, SpanKind, root_of

ANSWERING = "specmesh.v1.GenerationService/"
"""What the name of an orchestrator's span of a request begins with."""


class Outcome(StrEnum):
    """How a request ended."""

    OK = "ok"
    CANCELLED = "cancelled"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSummary:
    """One trace. Texts are empty, and numbers None, where its spans do not tell."""

    trace_id: str
    name: str
    """That of the root."""
    start_ns: int
    duration_ms: float
    """The root's."""
    outcome: Outcome
    reason: str
    """Of a failure: the mesh's reason, else the error's type."""
    strategy: str
    model: str
    session: str
    acceptance: float | None
    """Share of the verified draft tokens that were accepted, 0 to 1."""
    num_tokens: int | None
    """Output tokens."""
    num_spans: int
    num_missing: int
    """Spans that it has lost (``completeness``)."""
    nodes: tuple[str, ...]
    """Instances, or services where those have no name."""


def summarise(spans: Sequence[Span]) -> TraceSummary:
    """The summary of one trace, which has spans."""
    root = root_of(spans)
    answered = _answered(spans, root)
    outcome = _outcome(root, answered)
    return TraceSummary(
        trace_id=root.trace_id,
        name=root.name,
        start_ns=root.start_ns,
        duration_ms=root.duration_ms,
        outcome=outcome,
        reason=_reason(root, answered) if outcome is Outcome.FAILED else "",
        strategy=answered.text(names.STRATEGY) or root.text(names.STRATEGY),
        model=answered.text(names.RESPONSE_MODEL) or answered.text(names.REQUEST_MODEL),
        session=answered.text(names.RESPONSE_ID),
        acceptance=answered.maybe_number(names.ACCEPTANCE),
        num_tokens=_count(answered.maybe_number(names.OUTPUT_TOKENS)),
        num_spans=len(spans),
        num_missing=len(gaps(spans)),
        nodes=tuple(sorted({span.node.label for span in spans})),
    )


def failure(spans: Sequence[Span]) -> str:
    """What the caller of a failed request was told, with the field that is wrong if one is; empty
    where its spans do not tell."""
    root = root_of(spans)
    answered = _answered(spans, root)
    if _outcome(root, answered) is not Outcome.FAILED:
        return ""
    return answered.message or root.message


def _answered(spans: Sequence[Span], root: Span) -> Span:
    """The orchestrator's span of the request; the last one, for a resumed answer has several."""
    served = [
        span for span in spans if span.kind is SpanKind.SERVER and span.name.startswith(ANSWERING)
    ]
    return max(served, key=lambda span: span.start_ns, default=root)


def _outcome(root: Span, answered: Span) -> Outcome:
    statuses = {span.text(names.RPC_STATUS) for span in (root, answered)}
    if root.is_error or (root is answered and statuses - {"", "OK", "CANCELLED"}):
        return Outcome.FAILED
    # A client that has the whole answer may leave before the orchestrator's span has ended.
    finished = names.FINISH_REASONS in answered.attributes
    if root.was_cancelled and not (finished and root is answered):
        return Outcome.CANCELLED
    return Outcome.OK


def _reason(root: Span, answered: Span) -> str:
    spans = (answered, root)
    told = [span.text(name) for name in (names.REASON, names.ERROR_TYPE) for span in spans]
    return next(filter(None, told), "") or root.text(names.RPC_STATUS)


def _count(number: float | None) -> int | None:
    return None if number is None else int(number)
