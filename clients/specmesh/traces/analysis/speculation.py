"""Latencies of speculation's steps, and counts of accepted tokens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from specmesh.serving.conventions import (
    ACCEPTED,
    DRAFT_DEPTH,
    DRAFT_SPAN,
    DRAFT_TOKENS,
    FORWARD_MS,
    VERIFY_SPAN,
)
from specmesh.traces.spans import Span, SpanKind, servers_of


@dataclass(frozen=True, slots=True)
class TracedLatencies:
    """Medians over the calls that were answered, in milliseconds."""

    verify_ms: float
    """Duration of a verify call at the orchestrator."""
    target_ms: float
    """Duration of the target's forward pass in it."""
    draft_ms: float
    """Duration of a draft call at the orchestrator."""
    drafter_step_ms: float
    """Duration of the drafter's forward pass for one level of a draft."""


def latencies(spans: Sequence[Span]) -> TracedLatencies | None:
    """Compute the latencies; None without answered drafts and verifications."""
    verifications = list(_answered(spans, VERIFY_SPAN))
    drafts = list(_answered(spans, DRAFT_SPAN))
    if not verifications or not drafts:
        return None
    return TracedLatencies(
        verify_ms=median(call.duration_ms for call, _ in verifications),
        target_ms=median(server.number(FORWARD_MS) for _, server in verifications),
        draft_ms=median(call.duration_ms for call, _ in drafts),
        drafter_step_ms=median(
            server.number(FORWARD_MS) / call.number(DRAFT_DEPTH) for call, server in drafts
        ),
    )


def accepted_counts(spans: Iterable[Span], num_draft_tokens: int) -> list[int]:
    """Count the drafts of ``num_draft_tokens`` of which 0, 1, ... tokens were accepted."""
    counts = [0] * (num_draft_tokens + 1)
    for span in spans:
        answered = span.name == VERIFY_SPAN and ACCEPTED in span.attributes
        if answered and span.number(DRAFT_TOKENS) == num_draft_tokens:
            counts[int(span.number(ACCEPTED))] += 1
    return counts


def _answered(spans: Sequence[Span], name: str) -> Iterator[tuple[Span, Span]]:
    servers = servers_of(spans)
    for call in spans:
        if call.name == name and call.kind is SpanKind.CLIENT and not call.was_cancelled:
            for server in servers.get(call.span_id, ())[:1]:
                yield call, server
