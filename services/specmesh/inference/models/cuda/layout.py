"""The plan of one forward pass as the kernels read it: plain arrays of numbers, in one buffer.

Tokens of all sequences are packed in one row, part after part. What a token attends to is its span,
the keys that lead its sequence, and of those after that the ones whose bits are set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from specmesh.decoding.prefix import BLOCK_TOKENS
from specmesh.inference.engine.batch import AttentionMask, BatchPart, Copy

Int32s = npt.NDArray[np.int32]

WORD_BITS = 32
NO_SLOT = -1


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of the arrays of a layout: what a CUDA graph is captured for.

    Up to ``tokens`` in as many sequences, tiles and rows of logits; ``words`` of bits for each
    token.
    """

    tokens: int
    words: int


@dataclass(frozen=True, slots=True)
class Layout:
    """One forward pass; ``copies`` are carried out in order, before anything else.

    ``token_ids``, ``positions``, ``slots`` and ``spans`` are ``[tokens]``; ``bits`` is ``[tokens,
    words]``. ``rows`` are the indices of the tokens whose logits are requested. ``tiles`` is
    ``[tiles, 3]``: a sequence, the first of its tokens, and how many follow one another.
    ``lengths`` ``[sequences]`` is the number of keys of each, and ``starts`` the place in
    ``tables`` of the first of its blocks.
    """

    copies: tuple[Copy, ...]
    token_ids: Int32s
    positions: Int32s
    slots: Int32s
    rows: Int32s
    spans: Int32s
    bits: Int32s
    tiles: Int32s
    lengths: Int32s
    starts: Int32s
    tables: Int32s


def lay_out(parts: Sequence[BatchPart], copies: Sequence[Copy], tile_tokens: int) -> Layout:
    """Lay out ``parts``, to run after ``copies``, in tiles of up to ``tile_tokens``."""
    spans: list[Int32s] = []
    masked: list[tuple[int, Int32s]] = []
    tiles: list[tuple[int, int, int]] = []
    tables: list[Int32s] = []
    rows: list[int] = []
    starts, start, first = [], 0, 0
    for number, part in enumerate(parts):
        width, num_blocks = len(part.token_ids), -(-part.length // BLOCK_TOKENS)
        own, bits = _attended(part.attention_mask, width, part.length)
        spans.append(own)
        if bits is not None:
            masked.append((first, bits))
        tiles += [
            (number, first + begin, min(tile_tokens, width - begin))
            for begin in range(0, width, tile_tokens)
        ]
        rows += [first + row for row in part.rows]
        tables.append(np.asarray(part.blocks[:num_blocks], np.int32))
        starts.append(start)
        start += num_blocks
        first += width
    words = max((bits.shape[1] for _, bits in masked), default=0)
    all_bits = np.zeros((first, words), np.int32)
    for begin, bits in masked:
        all_bits[begin : begin + len(bits), : bits.shape[1]] = bits
    return Layout(
        copies=tuple(copies),
        token_ids=_joined([part.token_ids for part in parts]),
        positions=_joined([part.positions for part in parts]),
        slots=_joined([part.slots for part in parts]),
        rows=np.array(rows, np.int32),
        spans=np.concatenate(spans),
        bits=all_bits,
        tiles=np.array(tiles, np.int32),
        lengths=np.array([part.length for part in parts], np.int32),
        starts=np.array(starts, np.int32),
        tables=np.concatenate(tables),
    )


def _attended(mask: AttentionMask | None, width: int, length: int) -> tuple[Int32s, Int32s | None]:
    """Return the spans ``[width]`` and the bits ``[width, words]``, None if no token has any."""
    if mask is None:
        return np.full(width, length, np.int32), None
    spans = np.where(mask[:, -1] & mask.all(axis=1), length, mask.argmin(axis=1))
    after = mask.sum(axis=1) - spans
    if not after.any():
        return spans.astype(np.int32), None
    num_bits = length - int(spans[after > 0].min())
    num_bits += -num_bits % WORD_BITS
    indexes = spans[:, None] + np.arange(num_bits)
    shown = np.take_along_axis(mask, np.minimum(indexes, length - 1), axis=1)
    shown &= indexes < length
    packed = np.packbits(shown, axis=1, bitorder="little")
    return spans.astype(np.int32), packed.view(np.int32)


def _joined(lists: Sequence[Sequence[int]]) -> Int32s:
    return np.concatenate([np.asarray(each, np.int32) for each in lists])
