"""The beginnings of a prefix whose holders are worth remembering.

A replica that holds a prefix holds every beginning of it, block by block. Noting all of them would
cost as much as the text. These are enough for the next prefix to match one:

- the ends of texts that another prefix may continue: an answer's prompt, and the answer;
- a **grid**, the same for all prefixes, for prefixes that share only a beginning, as with a system
  prompt.
"""

from __future__ import annotations

from collections.abc import Collection

from specmesh.decoding.prefix import BLOCK_TOKENS

GRID_TOKENS = 256
"""Spacing of the grid; a shorter common beginning would save little."""
MAX_ON_GRID = 64
NUM_LATEST = 32
"""Number of final blocks at which the end of an earlier turn is looked up; further back the grid
is enough."""


def worth_noting(length: int, ends: Collection[int]) -> list[int]:
    """Return the lengths, in tokens, of the beginnings of a prefix of ``length`` tokens whose
    holders to note: ascending, in whole blocks. Texts end at ``ends``."""
    return sorted({*_grid(length), *map(_whole_blocks, ends)} - {0})


def worth_looking_up(length: int) -> list[int]:
    """Return the lengths at which a beginning may have been noted, at most a constant number."""
    end = _whole_blocks(length)
    latest = range(end, max(0, end - NUM_LATEST * BLOCK_TOKENS), -BLOCK_TOKENS)
    return sorted({*_grid(length), *latest})


def _grid(length: int) -> range:
    """Return the grid points: coarser for a long prefix, and always a subset of the finer ones."""
    step = GRID_TOKENS
    while length // step > MAX_ON_GRID:
        step *= 2
    return range(step, length + 1, step)


def _whole_blocks(length: int) -> int:
    return length // BLOCK_TOKENS * BLOCK_TOKENS
