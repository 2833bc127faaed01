"""The highest logits of parts of a large row, by which its likely tokens are found without a look
at most of the others."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specmesh.decoding.noise import BLOCK_IDS, BLOCK_STRIDE, TILE_IDS, blocks_of

Logits = NDArray[np.floating[Any]]
Ids = NDArray[np.int64]

FEW = 256
"""The number of scores up to which sorting all of them takes no longer than finding the highest."""

_GROUP_IDS = 8
_GROUP_STRIDE = TILE_IDS // _GROUP_IDS
"""The distance of a group's ids, which are those of its tile that have one remainder, as those of a
block are: a block is the union of ``BLOCK_IDS / _GROUP_IDS`` groups."""
_GROUPS = np.arange(BLOCK_IDS // _GROUP_IDS)[:, None] * BLOCK_STRIDE
_PLACES = np.arange(_GROUP_IDS)[:, None] * _GROUP_STRIDE


class Maxima:
    """The highest of ``logits`` ``[vocab]`` in each eighth of a block of the noise, ``groups``;
    minus infinity where there is no logit."""

    def __init__(self, logits: Logits) -> None:
        self._logits = logits
        self.groups = _of_groups(logits)
        self.num_blocks: int = self.groups.size // _GROUPS.size

    def floor_of(self, count: int) -> float:
        """Return a logit that at least ``count`` tokens reach, and mostly not many more."""
        if 2 * count <= self.num_blocks:
            return nth_highest(_of_blocks(self.groups), count)
        return nth_highest(self.groups, count) if 2 * count <= self.groups.size else -np.inf

    def highest(self, count: int) -> Ids:
        """Return the ``count`` tokens with the highest finite logits and some more, ascending, but
        no more than ``count`` of those that are tied for the last place: the lowest of them."""
        floor = max(self.floor_of(count), lowest(self._logits.dtype))
        if 8 * self.num_groups_from(floor) < self.groups.size:
            return self.tokens_from(floor)
        # To rank what may be nearly all tokens, as after a processor that equals them, would take
        # milliseconds.
        above = (self._logits > floor).nonzero()[0]
        tied = (self._logits == floor).nonzero()[0]
        return np.sort(np.concatenate([above, tied[:count]]))

    def num_groups_from(self, floor: float) -> int:
        """Return the number of groups with a token that reaches ``floor``."""
        return int(np.count_nonzero(self.groups >= floor))

    def tokens_from(self, floor: float) -> Ids:
        """Return the tokens whose finite logits reach ``floor``, ascending."""
        floor = max(floor, lowest(self._logits.dtype))
        groups = (self.groups >= floor).nonzero()[0]
        if 8 * groups.size < self.groups.size:
            return self._tokens_of(groups, floor)
        return (self._logits >= floor).nonzero()[0]

    def tokens_of_blocks(self, floors: Logits) -> Ids:
        """Return the tokens whose logits reach the floor of their block, ascending; ``floors``
        ``[blocks]`` are finite and of the logits' type."""
        columns = self.groups.reshape(-1, _GROUPS.size, BLOCK_STRIDE)
        groups = (columns >= floors.reshape(-1, 1, BLOCK_STRIDE)).ravel().nonzero()[0]
        blocks = _blocks_of_groups(self.groups.size).take(groups)
        return self._tokens_of(groups, floors.take(blocks))

    def _tokens_of(self, groups: Ids, floors: Logits | float) -> Ids:
        """Return the tokens of ``groups`` ``[n]`` that reach ``floors``, ascending."""
        ids = _firsts(self.groups.size, _GROUP_STRIDE, TILE_IDS).take(groups) + _PLACES
        reached = (self._logits.take(ids, mode="clip") >= floors).ravel().nonzero()[0]
        found = ids.take(reached)
        found.sort()
        return found[: found.searchsorted(self._logits.size)]


def _of_groups(logits: Logits) -> Logits:
    """Return the highest of ``logits`` ``[vocab]`` in each group."""
    num_tiles = -(-logits.size // TILE_IDS)
    groups = np.empty(num_tiles * _GROUP_STRIDE, logits.dtype)
    _write_group_maxima(logits, groups.reshape(num_tiles, _GROUP_STRIDE))
    return groups


def _of_blocks(groups: Logits) -> Logits:
    """Return the highest logit in each block, given those in each group."""
    columns = groups.reshape(-1, _GROUPS.size, BLOCK_STRIDE)
    maxima: Logits = np.maximum.reduce(columns, axis=1)
    return maxima.ravel()


def _write_group_maxima(logits: Logits, maxima: Logits) -> None:
    """Write the highest of ``logits`` ``[vocab]`` in each group to ``maxima`` ``[tiles,
    groups]``."""
    num_tiles, num_rows = len(maxima), logits.size // _GROUP_STRIDE
    num_whole = num_rows // _GROUP_IDS
    rows = logits[: num_rows * _GROUP_STRIDE].reshape(num_rows, _GROUP_STRIDE)
    tiles = rows[: num_whole * _GROUP_IDS].reshape(num_whole, _GROUP_IDS, _GROUP_STRIDE)
    np.maximum.reduce(tiles, axis=1, out=maxima[:num_whole])
    if num_whole < num_tiles:
        np.maximum.reduce(rows[num_whole * _GROUP_IDS :], axis=0, out=maxima[-1], initial=-np.inf)
        last = logits[num_rows * _GROUP_STRIDE :]
        np.maximum(maxima[-1, : last.size], last, out=maxima[-1, : last.size])


@lru_cache(maxsize=32)
def _firsts(count: int, num_in_tile: int, size_of_tile: int) -> Ids:
    """Return the number of the first member of each of ``count`` parts, of which a tile of so many
    members has ``num_in_tile``."""
    tiles, parts = np.divmod(np.arange(count), num_in_tile)
    return tiles * size_of_tile + parts


@lru_cache(maxsize=32)
def _blocks_of_groups(num_groups: int) -> Ids:
    """Return the block of each of the first groups."""
    return blocks_of(_firsts(num_groups, _GROUP_STRIDE, TILE_IDS))


def nth_highest(scores: Logits, n: int) -> float:
    """Return the ``n``-th highest of ``scores``, of which there are as many.

    Like all that is done for each token, it uses methods in place of numpy's functions, whose
    dispatch takes longer than little work does.
    """
    scores = scores.copy()
    scores.partition(scores.size - n)
    return float(scores[-n])


def likeliest(scores: Logits, count: int) -> NDArray[np.int64]:
    """Return the indices of the ``count`` highest ``scores`` (all, if fewer), highest first.

    Ties go to the lower index.
    """
    if count == 1 < scores.size:
        return np.array([scores.argmax()])
    if count < scores.size and scores.size > FEW:
        near = (scores >= nth_highest(scores, count)).nonzero()[0]
        return near[(-scores[near]).argsort(kind="stable")[:count]]
    return (-scores).argsort(kind="stable")[:count]


@lru_cache
def lowest(dtype: np.dtype[Any]) -> float:
    """Return the lowest finite number of ``dtype``; numpy takes a microsecond to find it."""
    return float(np.finfo(dtype).min)


@lru_cache
def epsilon(dtype: np.dtype[Any]) -> float:
    """Return the distance from 1 to the next number of ``dtype``."""
    return float(np.finfo(dtype).eps)
