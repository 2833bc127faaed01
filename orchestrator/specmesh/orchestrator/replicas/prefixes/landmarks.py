"""Which beginnings of a prefix it is worth knowing the holders of.

A replica that holds a prefix holds every beginning of it, block by block. To note each of them
would cost as much as the text; these suffice for the next prefix to meet one:

- where a text ends that another one may go on from: the prompt of an answer, and the answer;
- a **grid**, the same for all prefixes, for those that merely begin alike, as with a system prompt.
"""

from __future__ import annotations

from collections.abc import Collection

from specmesh.decoding.prefix import BLOCK_TOKENS

GRID_TOKENS = 256
"""Where prefixes begin alike for less, little is lost."""
MAX_ON_GRID = 64
NUM_LATEST = 32
"""Blocks: an end of an earlier turn is looked for within so many of the end. Before those a point
of the grid will do."""


def worth_noting(length: int, ends: Collection[int]) -> list[int]:
    """Lengths, in tokens, of the beginnings of a prefix of ``length`` tokens to note who holds;
    ascending, whole blocks each. Texts end at ``ends``."""
    return sorted({*_grid(length), *map(_whole_blocks, ends)} - {0})


def worth_looking_up(length: int) -> list[int]:
    """Those at which somebody may have noted it; a constant number, however long it is."""
    end = _whole_blocks(length)
    latest = range(end, max(0, end - NUM_LATEST * BLOCK_TOKENS), -BLOCK_TOKENS)
    return sorted({*_grid(length), *latest})


def _grid(length: int) -> range:
    """Wider for a long prefix, and always at points of the narrower ones."""
    step = GRID_TOKENS
    while length // step > MAX_ON_GRID:
        step *= 2
    return range(step, length + 1, step)


def _whole_blocks(length: int) -> int:
    return length // BLOCK_TOKENS * BLOCK_TOKENS
