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

    Long prefixes share ``chunk_tokens`` (see ``shares``), and trees share ``TREE_TOKENS``. Requests
    that are completely scored get no part.
    """
    planned: list[Planned] = []
    rows = TREE_TOKENS
    sequences = [_sequence(request) for request in requests]
    pending = [sequence.num_pending_tokens for sequence in sequences]
    for number, taken in enumerate(shares(pending, chunk_tokens)):
        sequence, tree = sequences[number], requests[number].tree
        nodes = len(tree) - sequence.num_scored_nodes if taken == pending[number] else 0
        if not taken + nodes or (nodes > rows and planned):
            continue
        rows -= nodes
        planned.append(Planned(number, sequence, sequence.plan(tree, taken)))
    return planned


def shares(pending: Sequence[int], chunk_tokens: int) -> list[int]:
    """Return how many of its ``pending`` tokens each prefix has computed next, oldest first.

    Prefixes that lack at most a block are computed whole. The others share ``chunk_tokens``: half
    of them are for the oldest, so that it gets on whatever comes after it, and the rest are for
    those that lack least, so that a short prompt does not wait for a long one.
    """
    taken = [number if number <= BLOCK_TOKENS else 0 for number in pending]
    long = [index for index, number in enumerate(pending) if number > BLOCK_TOKENS]
    if not long:
        return taken
    oldest = long[0]
    taken[oldest] = min(pending[oldest], chunk_tokens // 2)
    left = chunk_tokens - taken[oldest]
    for index in sorted(long, key=lambda index: pending[index] - taken[index]):
        more = min(pending[index] - taken[index], left)
        taken[index] += more
        left -= more
    return taken


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
