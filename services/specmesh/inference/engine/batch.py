"""The plan of one forward pass: its tokens, where their KV lies, and which attend to which.

Plain data made of numbers, so that it can be sent to other processes that hold parts of the model.
The tokens of all sequences are packed in one row. Attention is computed group by group: sequences
with equally many new tokens and about equally much KV.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np
import numpy.typing as npt

from specmesh.decoding.prefix import BLOCK_TOKENS

Indexes = npt.NDArray[np.int64]
AttentionMask = npt.NDArray[np.bool_]
"""``[new tokens, KV tokens]``: True where the new token attends to the KV token. The KV tokens are
the last ones of the sequence; new tokens attend to all others."""

GROUP_COST_BLOCKS = 40
"""The number of padding blocks that cost as much as one more group."""


@dataclass(frozen=True, slots=True)
class BatchPart:
    """One sequence's part of a forward pass.

    The KV of its token i lies in slot ``i % 16`` of block ``blocks[i // 16]``. ``attention_mask``
    is None if every new token attends to all ``length`` tokens. ``slots`` is where the KV of the
    new tokens goes, and ``parent_slots`` where that of the tokens before them is (the first token
    of a text has its own slot there); ``rows`` are the indices of the new tokens whose logits are
    requested.
    """

    token_ids: Sequence[int]
    positions: Sequence[int]
    slots: Sequence[int]
    parent_slots: Sequence[int]
    rows: Sequence[int]
    blocks: Indexes
    length: int
    attention_mask: AttentionMask | None


@dataclass(frozen=True, slots=True)
class Group:
    """Sequences whose attention is one call; ``width`` tokens of each, from token ``start`` on.

    ``lengths`` are the tokens of each sequence, the longest first, new ones included. ``blocks`` is
    ``[sequences, blocks]``. ``attention_mask`` is ``[sequences, width, length]``, True where a
    token attends, or None if all tokens attend to everything.
    """

    start: int
    width: int
    lengths: Indexes
    blocks: Indexes
    attention_mask: npt.NDArray[np.bool_] | None

    @property
    def length(self) -> int:
        """Return the length of the longest sequence."""
        return int(self.lengths[0])


@dataclass(frozen=True, slots=True)
class Copy:
    """KV to copy from slots to other slots; all are read before any is written."""

    sources: Indexes
    destinations: Indexes


@dataclass(frozen=True, slots=True)
class Batch:
    """One forward pass. ``copies`` are carried out in order, before anything else.

    ``token_ids``, ``positions``, ``slots`` and ``parent_slots`` are ``[tokens]``, group after
    group. ``rows`` are the indices of the tokens whose logits are requested: those of the first
    part, then those of the next. ``padding_slots`` lie beyond a sequence's end, but PyTorch's
    attention reads them: their scores are masked, yet their values must be finite, since they are
    multiplied by 0.
    """

    copies: tuple[Copy, ...]
    token_ids: Indexes
    positions: Indexes
    slots: Indexes
    parent_slots: Indexes
    padding_slots: Indexes
    rows: Indexes
    groups: tuple[Group, ...]


def pack(parts: Sequence[BatchPart], copies: Sequence[Copy]) -> Batch:
    """Pack ``parts`` in one batch, to run after ``copies``."""
    groups: list[Group] = []
    order: list[BatchPart] = []
    padding_slots: list[range] = []
    starts = [0] * len(parts)
    start = 0
    for members in _similar(parts):
        together = [parts[member] for member in members]
        groups.append(_group(together, start))
        padding_slots += [
            _padding_slots(part) for part in together if part.length < groups[-1].length
        ]
        order += together
        for member in members:
            starts[member] = start
            start += groups[-1].width
    return Batch(
        copies=tuple(copies),
        token_ids=_joined(part.token_ids for part in order),
        positions=_joined(part.positions for part in order),
        slots=_joined(part.slots for part in order),
        parent_slots=_joined(part.parent_slots for part in order),
        padding_slots=_joined(padding_slots),
        rows=_joined(
            [first + row for row in part.rows] for first, part in zip(starts, parts, strict=True)
        ),
        groups=tuple(groups),
    )


def run_start(indexes: Indexes) -> int | None:
    """Return the first of ``indexes`` if they are consecutive, else None."""
    start = int(indexes[0])
    is_run = np.array_equal(indexes, np.arange(start, start + len(indexes)))
    return start if is_run else None


def _similar(parts: Sequence[BatchPart]) -> list[list[int]]:
    """Group the indices of parts of equal width, and split a group where padding would cost
    more."""
    if len(parts) == 1:
        return [[0]]
    by_width: dict[int, list[int]] = {}
    for index, part in enumerate(parts):
        by_width.setdefault(len(part.token_ids), []).append(index)
    groups: list[list[int]] = []
    for members in by_width.values():
        members.sort(key=lambda index: -parts[index].length)
        ends = _ends([_num_blocks(parts[index]) for index in members])
        groups += [members[start:end] for start, end in pairwise([0, *ends])]
    return groups


def _ends(sizes: Sequence[int]) -> list[int]:
    """Return the end of each group of sequences with ``sizes`` blocks, longest first.

    Every sequence of a group costs as much as its longest one, and each group adds a fixed cost.
    Dynamic programming from the last sequence to the first finds the cheapest partition.
    """
    cost = [0] * (len(sizes) + 1)
    ends = [0] * len(sizes)
    for first in reversed(range(len(sizes))):
        cost[first], ends[first] = min(
            (cost[end] + sizes[first] * (end - first) + GROUP_COST_BLOCKS, end)
            for end in range(first + 1, len(sizes) + 1)
        )
    taken = []
    first = 0
    while first < len(sizes):
        first = ends[first]
        taken.append(first)
    return taken


def _group(parts: Sequence[BatchPart], start: int) -> Group:
    width, length = len(parts[0].token_ids), parts[0].length
    lengths = np.fromiter((part.length for part in parts), np.int64)
    blocks = np.zeros((len(parts), _num_blocks(parts[0])), np.int64)
    for row, part in enumerate(parts):
        used = _num_blocks(part)
        blocks[row, :used] = part.blocks[:used]
        # Pad with the sequence's own block: masked values must be finite too, and those of other
        # sequences may have overflowed.
        blocks[row, used:] = part.blocks[used - 1]
    if all(part.attention_mask is None and part.length == length for part in parts):
        return Group(start, width, lengths, blocks, None)
    attention_mask = np.zeros((len(parts), width, length), np.bool_)
    for row, part in enumerate(parts):
        attention_mask[row, :, : part.length] = True
        if (last := part.attention_mask) is not None:
            attention_mask[row, :, part.length - last.shape[1] : part.length] = last
    return Group(start, width, lengths, blocks, attention_mask)


def _padding_slots(part: BatchPart) -> range:
    """Return the unused slots of the last block of ``part``, which no other sequence uses."""
    end = part.blocks[_num_blocks(part) - 1] * BLOCK_TOKENS + BLOCK_TOKENS
    num_left = -part.length % BLOCK_TOKENS
    return range(end - num_left, end)


def _num_blocks(part: BatchPart) -> int:
    return -(-part.length // BLOCK_TOKENS)


def _joined(lists: Iterable[Sequence[int]]) -> Indexes:
    return np.fromiter(chain.from_iterable(lists), np.int64)
