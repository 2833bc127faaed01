"""Who takes part in the next forward, and with what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from specmesh.decoding.prefix import BLOCK_TOKENS
from specmesh.inference.engine.batch import BatchPart
from specmesh.inference.engine.paged_sequence import PagedSequence
from specmesh.inference.model import ForwardRequest

TREE_TOKENS = 1024
"""The most nodes of all trees together, but for one tree alone: each takes a row of logits."""


class Planned(NamedTuple):
    """The number of an ask, its sequence, and what of it goes through the forward at hand."""

    number: int
    sequence: PagedSequence
    part: BatchPart


def plan_forward(asks: Sequence[ForwardRequest], chunk_tokens: int) -> list[Planned]:
    """Parts of those ``asks`` that find room, first come first served.

    Prefixes that lack no more than a block go through whole; the others share
    ``chunk_tokens``, and trees share ``TREE_TOKENS``. Asks of which all is scored have no part.
    """
    planned: list[Planned] = []
    chunk, rows = chunk_tokens, TREE_TOKENS
    for number, ask in enumerate(asks):
        sequence = _sequence(ask)
        pending = sequence.num_pending_tokens
        is_long = pending > BLOCK_TOKENS
        taken = min(pending, chunk) if is_long else pending
        nodes = len(ask.tree) - sequence.num_scored_nodes if taken == pending else 0
        if not taken + nodes or (nodes > rows and planned):
            continue
        if is_long:
            chunk -= taken
        rows -= nodes
        planned.append(Planned(number, sequence, sequence.plan(ask.tree, taken)))
    return planned


def is_scored(ask: ForwardRequest) -> bool:
    """Whether no forward is needed any more."""
    sequence = _sequence(ask)
    return not sequence.num_pending_tokens and len(ask.tree) == sequence.num_scored_nodes


def kind_of(planned: Sequence[Planned]) -> str:
    """What the longest part of a forward is."""
    parts = [each.part for each in planned]
    if any(not part.rows or part.rows[0] >= BLOCK_TOKENS for part in parts):
        return "prefill"  # more than the last tokens of a known prefix
    return "verify" if any(len(part.rows) > 1 for part in parts) else "decode"


def _sequence(ask: ForwardRequest) -> PagedSequence:
    assert isinstance(ask.sequence, PagedSequence)
    return ask.sequence
