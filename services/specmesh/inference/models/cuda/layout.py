"""The plan of one forward pass as the kernels read it: plain arrays of numbers.

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


@dataclass(frozen=True, slots=True)
class Layout:
    """One forward pass; ``copies`` are carried out in order, before anything else.

    ``token_ids``, ``positions`` and ``spans`` are ``[tokens]``; ``bits`` is ``[tokens, words]``.
    ``rows`` are the indices of the tokens whose logits are requested. ``tiles`` is ``[tiles, 3]``:
    a sequence, the first of its tokens, and how many follow one another. ``sequences`` is
    ``[sequences, 4]``: the place in ``tables`` of the first of its blocks, the number of its keys,
    the number of new ones at their end, and the index of its first token.
    """

    copies: tuple[Copy, ...]
    token_ids: Int32s
    positions: Int32s
    rows: Int32s
    spans: Int32s
    bits: Int32s
    tiles: Int32s
    sequences: Int32s
    tables: Int32s


def lay_out(parts: Sequence[BatchPart], copies: Sequence[Copy], tile_tokens: int) -> Layout:
    """Lay out ``parts``, to run after ``copies``, in tiles of up to ``tile_tokens``."""
    spans: list[Int32s] = []
    masked: list[tuple[int, Int32s]] = []
    tiles: list[tuple[int, int, int]] = []
    sequences: list[tuple[int, int, int, int]] = []
    rows: list[int] = []
    table_start = first = 0
    for number, part in enumerate(parts):
        width = len(part.token_ids)
        leading, bits = _attended(part.attention_mask, width, part.length)
        spans.append(leading)
        if bits is not None:
            masked.append((first, bits))
        tiles += [
            (number, first + begin, min(tile_tokens, width - begin))
            for begin in range(0, width, tile_tokens)
        ]
        sequences.append((table_start, part.length, width, first))
        rows += [first + row for row in part.rows]
        table_start += -(-part.length // BLOCK_TOKENS)
        first += width
    return Layout(
        copies=tuple(copies),
        token_ids=_joined([part.token_ids for part in parts]),
        positions=_joined([part.positions for part in parts]),
        rows=np.array(rows, np.int32),
        spans=_joined(spans),
        bits=_bits(first, masked),
        tiles=np.array(tiles, np.int32),
        sequences=np.array(sequences, np.int32),
        tables=_joined([part.blocks[: -(-part.length // BLOCK_TOKENS)] for part in parts]),
    )


def _attended(mask: AttentionMask | None, width: int, length: int) -> tuple[Int32s, Int32s | None]:
    """Return the spans ``[width]`` and the bits ``[width, words]``, None if no token has any."""
    if mask is None:
        return np.full(width, length, np.int32), None
    num_last = mask.shape[1]
    shown = np.where(mask.all(axis=1), num_last, mask.argmin(axis=1))
    spans = (length - num_last + shown).astype(np.int32)
    after = mask.sum(axis=1) - shown
    if not after.any():
        return spans, None
    num_bits = num_last - int(shown[after > 0].min())
    num_bits += -num_bits % WORD_BITS
    indexes = shown[:, None] + np.arange(num_bits)
    bits = np.take_along_axis(mask, np.minimum(indexes, num_last - 1), axis=1)
    bits &= indexes < num_last
    return spans, np.packbits(bits, axis=1, bitorder="little").view(np.int32)


def _bits(num_tokens: int, masked: Sequence[tuple[int, Int32s]]) -> Int32s:
    """Return the bits of all tokens, given those of the parts that have any, with the index of
    their first token."""
    all_bits = np.zeros(
        (num_tokens, max((bits.shape[1] for _, bits in masked), default=0)), np.int32
    )
    for first, bits in masked:
        all_bits[first : first + len(bits), : bits.shape[1]] = bits
    return all_bits


def _joined(lists: Sequence[Sequence[int] | npt.NDArray[np.integer]]) -> Int32s:
    return np.concatenate([np.asarray(each, np.int32) for each in lists])
