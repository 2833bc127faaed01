"""Trace summaries, as lists of traces show them; computed once, when a trace is stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import isfinite

from specmesh.serving import conventions as names
from specmesh.traces.analysis.completeness import gaps
from specmesh.traces.analysis.verdicts import answering
from specmesh.traces.spans import Span, SpanKind, root_of
from specmesh.traces.statuses import is_failure

ANSWERING = "specmesh.v1.GenerationService/"
"""Prefix of the name of an orchestrator's span for a request."""


LATEST_NS = 2**63 - 1
"""The latest time, in nanoseconds since 1970, that SQLite and most other programs can hold."""


class Outcome(StrEnum):
    """The outcome of a request."""

    OK = "ok"
    CANCELLED = "cancelled"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSummary:
    """The summary of a trace. Strings are empty, and numbers None, where its spans don't tell."""

    trace_id: str
    name: str
    """Name of the root."""
    start_ns: int
    """Start of the root, at most ``LATEST_NS``."""
    duration_ms: float
    """Duration of the root."""
    outcome: Outcome
    reason: str
    """Reason of a failure: the mesh's, else the error's type."""
    strategy: str
    model: str
    sessions: tuple[str, ...]
    """The sessions of its answers in order of start: a gateway's request may have several."""
    acceptance: float | None
    """Share of the verified draft tokens that were accepted, 0 to 1."""
    num_tokens: int | None
    """Number of output tokens of all answers."""
    num_spans: int
    num_missing: int
    """Number of missing spans (``completeness``)."""
    nodes: tuple[str, ...]
    """Labels of its nodes: instances, or services if an instance has no name."""


def summarise(spans: Sequence[Span]) -> TraceSummary:
    """Summarise one trace, which must have spans."""
    root = root_of(spans)
    streams = _streams(spans)
    answered = _answered(streams, root)
    outcome = _outcome(root, streams)
    return TraceSummary(
        trace_id=root.trace_id,
        name=root.name,
        start_ns=min(root.start_ns, LATEST_NS),
        duration_ms=root.duration_ms,
        outcome=outcome,
        reason=_reason(root, answered) if outcome is Outcome.FAILED else "",
        strategy=answered.text(names.STRATEGY) or root.text(names.STRATEGY),
        model=answered.text(names.RESPONSE_MODEL) or answered.text(names.REQUEST_MODEL),
        sessions=_sessions(streams or [root]),
        acceptance=answered.maybe_number(names.ACCEPTANCE),
        num_tokens=_num_tokens(spans, streams or [root]),
        num_spans=len(spans),
        num_missing=len(gaps(answering(spans))),
        nodes=tuple(sorted({span.node.label for span in spans})),
    )


def failure(spans: Sequence[Span]) -> str:
    """Return the error message of a failed request, with the name of a wrong field; empty if the
    request did not fail or its spans don't tell."""
    root = root_of(spans)
    streams = _streams(spans)
    if _outcome(root, streams) is not Outcome.FAILED:
        return ""
    return _answered(streams, root).message or root.message


def _streams(spans: Sequence[Span]) -> list[Span]:
    """Return the orchestrators' spans of the request in order of start: one for each stream of each
    answer, and a resumed answer has several."""
    served = (
        span for span in spans if span.kind is SpanKind.SERVER and span.name.startswith(ANSWERING)
    )
    return sorted(served, key=lambda span: span.start_ns)


def _answered(streams: Sequence[Span], root: Span) -> Span:
    """Return the last of ``streams``, or the root without one."""
    return streams[-1] if streams else root


def _sessions(streams: Sequence[Span]) -> tuple[str, ...]:
    sessions = (span.text(names.RESPONSE_ID) for span in streams)
    return tuple(dict.fromkeys(filter(None, sessions)))


def _num_tokens(spans: Sequence[Span], streams: Sequence[Span]) -> int | None:
    """Return the output tokens of all answers: as the client counted an answer that it has, which
    may have come in several streams, else as each of ``streams`` counted what was new in it."""
    whole = [
        span
        for span in spans
        if span.name == names.GENERATE_SPAN and names.OUTPUT_TOKENS in span.attributes
    ]
    known = {span.text(names.RESPONSE_ID) for span in whole}
    others = [span for span in streams if span.text(names.RESPONSE_ID) not in known]
    counts = [_count(span.maybe_number(names.OUTPUT_TOKENS)) for span in (*whole, *others)]
    told = [count for count in counts if count is not None]
    return sum(told) if told else None


def _outcome(root: Span, streams: Sequence[Span]) -> Outcome:
    if root.is_error or _is_refused(root):
        return Outcome.FAILED
    # A client that has the whole answer may leave before the orchestrator's span has ended.
    if root.was_cancelled and names.FINISH_REASONS not in root.attributes:
        return Outcome.CANCELLED
    # The root may be of a program that passes on what it was told. Of a resumed answer or a request
    # that was tried again, one has succeeded.
    if streams and all(map(_is_refused, streams)):
        return Outcome.FAILED
    return Outcome.OK


def _is_refused(span: Span) -> bool:
    told = span.text(names.RPC_STATUS), span.number(names.HTTP_STATUS), span.text(names.ERROR_TYPE)
    return is_failure(*told)


def _reason(root: Span, answered: Span) -> str:
    spans = (answered, root)
    told = [span.text(name) for name in (names.REASON, names.ERROR_TYPE) for span in spans]
    statuses = [span.text(names.RPC_STATUS) for span in spans if _is_refused(span)]
    return next(filter(None, (*told, *statuses)), "")


def _count(number: float | None) -> int | None:
    return int(number) if number is not None and isfinite(number) else None
