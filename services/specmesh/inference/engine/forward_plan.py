"""Which requests take part in the next forward pass, and with which tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from specmesh.decoding.prefix import BLOCK_TOKENS
from specmesh.inference.engine.batch import BatchPart
from specmesh.inference.engine.paged_sequence import PagedSequence
from specmesh.inference.model import ForwardRequest

TREE_TOKENS = 1024
"""The most nodes of all trees in one forward pass, since each takes a row of logits; the first tree
may have more."""


class Planned(NamedTuple):
    """The index of a request, its sequence, and its part of the next forward pass."""

    number: int
    sequence: PagedSequence
    part: BatchPart


def plan_forward(requests: Sequence[ForwardRequest], chunk_tokens: int) -> list[Planned]:
    """Parts of those ``requests`` for which there is room, first come first served.

    Prefixes that lack no more than a block go through whole; the others share ``chunk_tokens``, and
    trees share ``TREE_TOKENS``. Requests that are all scored have no part.
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
    """Whether ``request`` needs no further forward pass."""
    sequence = _sequence(request)
    return not sequence.num_pending_tokens and len(request.tree) == sequence.num_scored_nodes


def kind_of(planned: Sequence[Planned]) -> str:
    """The kind of a forward pass with these parts: "prefill", else "verify", else "decode"."""
    parts = [each.part for each in planned]
    if any(not part.rows or part.rows[0] >= BLOCK_TOKENS for part in parts):
        return "prefill"  # more than the last tokens of a known prefix
    return "verify" if any(len(part.rows) > 1 for part in parts) else "decode"


def _sequence(request: ForwardRequest) -> PagedSequence:
    assert isinstance(request.sequence, PagedSequence)
    return request.sequence
