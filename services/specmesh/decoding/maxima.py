"""The highest logits of parts of a large row, by which its likely tokens are found without a look
at most of the others."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specmesh.decoding.noise import BLOCK_IDS, BLOCK_STRIDE, TILE_IDS

_GROUP_IDS = 8
_GROUP_STRIDE = TILE_IDS // _GROUP_IDS
"""The distance of a group's ids, which are those of its tile that have one remainder, as those of a
block are: a block is the union of ``BLOCK_IDS / _GROUP_IDS`` groups."""
_GROUPS = np.arange(BLOCK_IDS // _GROUP_IDS)[:, None] * BLOCK_STRIDE
_PLACES = np.arange(_GROUP_IDS)[:, None] * _GROUP_STRIDE


class Maxima:
    """The highest of ``logits`` ``[vocab]`` in each block of the noise, ``blocks``, and in each
    eighth of a block, ``groups``; minus infinity where there is no logit."""

    def __init__(self, logits: NDArray[np.floating[Any]]) -> None:
        self._logits = logits
        self.groups = _group_maxima(logits)
        tiles = self.groups.reshape(-1, _GROUPS.size, BLOCK_STRIDE)
        self.blocks: NDArray[np.floating[Any]] = np.maximum.reduce(tiles, axis=1).ravel()

    def tokens_from(self, floor: float) -> NDArray[np.int64]:
        """Return the tokens whose finite logits reach ``floor``, ascending."""
        floor = max(floor, lowest(self._logits.dtype))
        groups = (self.groups >= floor).nonzero()[0]
        if 8 * groups.size < self.groups.size:
            return self._tokens_of(groups, floor)
        return (self._logits >= floor).nonzero()[0]

    def tokens_of_blocks(
        self, blocks: NDArray[np.int64], floors: NDArray[np.float64]
    ) -> NDArray[np.int64]:
        """Return the tokens of ``blocks`` ``[n]`` whose finite logits reach ``floors`` ``[n]``,
        ascending."""
        floors = np.maximum(floors, lowest(self._logits.dtype))
        groups = _firsts(self.blocks.size, BLOCK_STRIDE, _GROUP_STRIDE)[blocks] + _GROUPS
        reached = (self.groups.take(groups) >= floors).ravel().nonzero()[0]
        return self._tokens_of(groups.take(reached), floors.take(reached, mode="wrap"))

    def _tokens_of(
        self, groups: NDArray[np.int64], floors: NDArray[np.float64] | float
    ) -> NDArray[np.int64]:
        """Return the tokens of ``groups`` ``[n]`` that reach ``floors``, ascending."""
        ids = _firsts(self.groups.size, _GROUP_STRIDE, TILE_IDS)[groups] + _PLACES
        reached = (self._logits.take(ids, mode="clip") >= floors).ravel().nonzero()[0]
        found = ids.take(reached)
        found.sort()
        return found[: found.searchsorted(self._logits.size)]


def _group_maxima(logits: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
    """Return the highest of ``logits`` ``[vocab]`` in each group, tile by tile."""
    num_tiles, num_rows = -(-logits.size // TILE_IDS), logits.size // _GROUP_STRIDE
    num_whole = num_rows // _GROUP_IDS
    maxima = np.empty((num_tiles, _GROUP_STRIDE), logits.dtype)
    rows = logits[: num_rows * _GROUP_STRIDE].reshape(num_rows, _GROUP_STRIDE)
    tiles = rows[: num_whole * _GROUP_IDS].reshape(num_whole, _GROUP_IDS, _GROUP_STRIDE)
    np.maximum.reduce(tiles, axis=1, out=maxima[:num_whole])
    if num_whole < num_tiles:
        np.maximum.reduce(
            rows[num_whole * _GROUP_IDS :], axis=0, out=maxima[-1], initial=-np.inf
        )
        last = logits[num_rows * _GROUP_STRIDE :]
        np.maximum(maxima[-1, : last.size], last, out=maxima[-1, : last.size])
    return maxima.ravel()


@lru_cache(maxsize=32)
def _firsts(count: int, num_in_tile: int, size_of_tile: int) -> NDArray[np.int64]:
    """Return the number of the first member of each of ``count`` parts, of which a tile of so many
    members has ``num_in_tile``."""
    tiles, parts = np.divmod(np.arange(count), num_in_tile)
    return tiles * size_of_tile + parts


@lru_cache
def lowest(dtype: np.dtype[Any]) -> float:
    """Return the lowest finite number of ``dtype``; numpy takes a microsecond to find it."""
    return float(np.finfo(dtype).min)
