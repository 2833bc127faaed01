"""The choice of requests for the next forward pass, and of their tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from specmesh.decoding.prefix import BLOCK_TOKENS
from specmesh.inference.engine.batch import BatchPart
from specmesh.inference.engine.paged_sequence import PagedSequence
from specmesh.inference.model import ForwardRequest

TREE_TOKENS = 1024
"""The most tree nodes in one forward pass, since each takes a row of logits; the first tree may
have more."""


class Planned(NamedTuple):
    """The index of a request, its sequence, and its part of the next forward pass."""

    number: int
    sequence: PagedSequence
    part: BatchPart


def plan_forward(requests: Sequence[ForwardRequest], chunk_tokens: int) -> list[Planned]:
    """Plan a part for each of ``requests`` for which there is room, first come first served.

    Prefixes that lack at most a block are computed whole; the others share ``chunk_tokens``, and
    trees share ``TREE_TOKENS``. Requests that are completely scored get no part.
    """
    planned: list[Planned] = []
    chunk, rows = chunk_tokens, TREE_TOKENS
    for number, request in enumerate(requests):
        sequence = _sequence(request)
        pending = sequence.num_pending_tokens
        is_long = pending > BLOCK_TOKENS
        taken = min(pending, chunk) if is_long else pending
        nodes = len(request.tree) - sequence.num_scored_nodes if taken == pending else 0
        if not taken + nodes or (nodes > rows and planned):
            continue
        if is_long:
            chunk -= taken
        rows -= nodes
        planned.append(Planned(number, sequence, sequence.plan(request.tree, taken)))
    return planned


def is_scored(request: ForwardRequest) -> bool:
    """Return whether ``request`` needs no further forward pass."""
    sequence = _sequence(request)
    return not sequence.num_pending_tokens and len(request.tree) == sequence.num_scored_nodes


def kind_of(planned: Sequence[Planned]) -> str:
    """Return the kind of a forward pass with these parts: the first that applies of "prefill",
    "verify" and "decode"."""
    parts = [each.part for each in planned]
    if any(not part.rows or part.rows[0] >= BLOCK_TOKENS for part in parts):
        return "prefill"  # more than the last tokens of a known prefix
    return "verify" if any(len(part.rows) > 1 for part in parts) else "decode"


def _sequence(request: ForwardRequest) -> PagedSequence:
    assert isinstance(request.sequence, PagedSequence)
    return request.sequence
