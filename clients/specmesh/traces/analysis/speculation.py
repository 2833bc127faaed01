"""Latencies of speculation's steps, and counts of accepted tokens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from specmesh.serving.conventions import (
    ACCEPTED,
    DRAFT_SPAN,
    DRAFT_TOKENS,
    FORWARD_MS,
    TREE_NODES,
    TREE_PARENTS,
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
    # A drafter without a guess answers with nothing.
    drafts = [each for each in _answered(spans, DRAFT_SPAN) if num_levels(each[0])]
    if not verifications or not drafts:
        return None
    return TracedLatencies(
        verify_ms=median(call.duration_ms for call, _ in verifications),
        target_ms=median(server.number(FORWARD_MS) for _, server in verifications),
        draft_ms=median(call.duration_ms for call, _ in drafts),
        drafter_step_ms=median(
            server.number(FORWARD_MS) / num_levels(call) for call, server in drafts
        ),
    )


def num_levels(call: Span) -> int:
    """Count the levels of the tree that a draft brought, or that a verification covered; a draft
    may end before the depth that was asked for."""
    depths: dict[int, int] = {}
    parents = call.numbers(TREE_PARENTS)
    for node, parent in zip(call.numbers(TREE_NODES), parents, strict=False):
        depths[node] = depths.get(parent, 0) + 1
    return max(depths.values(), default=0)


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
