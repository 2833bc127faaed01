"""The winner of a race in a single pass over the logits, compiled by numba.

Tile after tile of the row comes from memory once. The highest logits of its blocks, with the
highest noise of each, say which tokens could still win, and only these are scored, while the tile
is in the processor's cache. What is found is what ``specmesh.decoding.race`` finds: noise.py
describes the noise and its blocks.
"""

from __future__ import annotations

import math

import numba
import numpy as np
from numpy.typing import NDArray

from specmesh.decoding.compiled.intrinsics import prefetch
from specmesh.decoding.noise import (
    BLOCK_IDS,
    BLOCK_STRIDE,
    FIRST_BLOCK,
    GOLDEN_GAMMA,
    MIX_1,
    MIX_2,
    TILE_IDS,
)

UNSURE = -1
"""The result in place of a token: there is none with a finite score, a logit is NaN, or the two
highest scores are so near each other that rounding decides."""

_SLACK, _RELATIVE_SLACK = 1e-9, 1e-13
"""More than the rounding errors of scores."""
NUM_GROUPS = 8
_GROUP_IDS = BLOCK_IDS // NUM_GROUPS
"""A block that may hold the winner is searched by groups, of which most have no likely token."""

_PART = 64
"""The number of blocks that are passed over together where none can hold the winner."""
_LEAD = 2.0
"""Blocks whose bounds are this near the highest of their tile are searched before the others. The
scores found in them spare the search of half of these."""
_CACHE_LINE = 16
"""The number of logits that come from memory together."""

# The compiler computes with the types of its operands: a shift by a signed number would make the
# result of an unsigned one a float.
_GAMMA, _FIRST_MIX, _SECOND_MIX = np.uint64(GOLDEN_GAMMA), np.uint64(MIX_1), np.uint64(MIX_2)
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))
_FIRST_BLOCK, _PLACE, _LOW_BITS = np.uint64(FIRST_BLOCK), np.uint64(BLOCK_IDS - 1), np.uint64(12)
_ONE = np.float64(1).view(np.uint64)
_ONE_BITS = np.float64(1).view(np.int64)
_HALF_CELL = 1 - 2.0**-53

_MANTISSA_BITS, _MANTISSA = np.int64(52), np.int64((1 << 52) - 1)
_INT_IN_FLOAT = np.float64(1.5 * 2.0**52)
"""The low bits of this number plus a small integer are those of the integer."""
_INT_BITS = _INT_IN_FLOAT.view(np.int64) - np.int64(1023)
_LOG_2 = math.log(2)
_LOG = (0.030449005, -0.131581825, 0.285272681, -0.490230723, 0.999235484, 0.000009975)
"""The coefficients of a polynomial that is near log(1 + f) for f in [0, 1], the highest first."""
_LOG_ERROR = 2e-5
_MOST_NOISE = math.log(BLOCK_IDS) + _LOG_ERROR

compiled = numba.njit(error_model="numpy")
"""Compiles a function together with those that call it."""
inlined = numba.njit(error_model="numpy", inline="always")
"""The same, faster, for a function that is called in one place."""


@compiled
def _mixed(number: np.uint64, key: np.uint64) -> np.uint64:
    """Return output ``number`` of SplitMix64, seeded with ``key``."""
    z = key + _GAMMA + _GAMMA * number
    z = (z ^ (z >> _SHIFTS[0])) * _FIRST_MIX
    z = (z ^ (z >> _SHIFTS[1])) * _SECOND_MIX
    return z ^ (z >> _SHIFTS[2])


@compiled
def _uniform(bits: np.uint64) -> float:
    """Return uniform noise as ``specmesh.decoding.noise`` does."""
    return np.uint64((bits >> _LOW_BITS) | _ONE).view(np.float64) - _HALF_CELL


@compiled
def _rough_log(x: float) -> float:
    """Return log(x) of a normal number above 0 with an error below ``_LOG_ERROR``.

    ``math.log`` is a call of a library, which keeps a loop from being computed several elements at
    a time.
    """
    bits = np.float64(x).view(np.int64)
    exponent = np.int64((bits >> _MANTISSA_BITS) + _INT_BITS).view(np.float64) - _INT_IN_FLOAT
    f = np.int64((bits & _MANTISSA) | _ONE_BITS).view(np.float64) - 1.0
    log = _LOG[0]
    for coefficient in _LOG[1:]:
        log = log * f + coefficient
    return exponent * _LOG_2 + log


@compiled
def find_groups(
    row: NDArray[np.float32], start: int, groups: NDArray[np.float32], sums: NDArray[np.float32]
) -> None:
    """Write the highest logits of the groups of the tile from ``start`` to ``groups`` ``[8,
    BLOCK_STRIDE]``, and add all logits to ``sums`` ``[BLOCK_STRIDE]``."""
    num_ids = _GROUP_IDS * BLOCK_STRIDE
    for group in range(NUM_GROUPS):
        first = start + group * num_ids
        if first + num_ids > row.size:
            _find_last_group(row, first, groups[group], sums)
            continue
        ids = row[first : first + num_ids].reshape(_GROUP_IDS, BLOCK_STRIDE)
        for line in range(0, BLOCK_STRIDE, _CACHE_LINE):
            for member in range(_GROUP_IDS):  # The next group comes while this one is passed over.
                prefetch(row, first + num_ids + member * BLOCK_STRIDE + line)
            for column in range(line, line + _CACHE_LINE):
                highest, total = ids[0, column], ids[0, column]
                for member in range(1, _GROUP_IDS):
                    highest = max(highest, ids[member, column])
                    total += ids[member, column]
                groups[group, column] = highest
                sums[column] += total


@compiled
def _find_last_group(
    row: NDArray[np.float32], first: int, group: NDArray[np.float32], sums: NDArray[np.float32]
) -> None:
    """Do the same for the group of the tokens from ``first`` on, which the row does not fill."""
    for column in range(BLOCK_STRIDE):
        group[column] = -np.inf
    for at in range(first, row.size, BLOCK_STRIDE):
        for column in range(min(BLOCK_STRIDE, row.size - at)):
            group[column] = max(group[column], row[at + column])
            sums[column] += row[at + column]


@compiled
def _bound_blocks(
    tile: int,
    key: np.uint64,
    scale: float,
    groups: NDArray[np.float32],
    bits: NDArray[np.uint64],
    noise: NDArray[np.float64],
    bounds: NDArray[np.float64],
) -> None:
    """Write what was drawn for each block of a tile to ``bits``, a bound of the noise of its tokens
    to ``noise`` and one of their scores to ``bounds``, ``[BLOCK_STRIDE]`` each.

    The exponential variable that belongs to the uniform number 1 - x is -log(1 - x), which is more
    than the first terms of its series.
    """
    first = np.uint64(tile * BLOCK_STRIDE) | _FIRST_BLOCK
    for column in range(BLOCK_STRIDE):
        bits[column] = _mixed(first + np.uint64(column), key)
        x = 1.0 - _uniform(bits[column])
        least = x * (1.0 + x * (1 / 2 + x * (1 / 3 + x * (1 / 4))))
        noise[column] = _MOST_NOISE - _rough_log(least)
        highest = groups[0, column]
        for group in range(1, NUM_GROUPS):
            highest = max(highest, groups[group, column])
        bounds[column] = highest * scale + noise[column]


@compiled
def _highest(bounds: NDArray[np.float64], maxima: NDArray[np.float64]) -> float:
    """Return the highest of ``bounds`` ``[BLOCK_STRIDE]``, and overwrite ``maxima`` ``[_PART]``."""
    # A single maximum would have each comparison wait for the one before.
    for column in range(_PART):
        maxima[column] = bounds[column]
    for part in range(_PART, BLOCK_STRIDE, _PART):
        for column in range(_PART):
            maxima[column] = max(maxima[column], bounds[part + column])
    highest = maxima[0]
    for column in range(1, _PART):
        highest = max(highest, maxima[column])
    return float(highest)


@compiled
def holds_nan(sums: NDArray[np.float32]) -> bool:
    """Return whether one of ``sums`` is NaN."""
    num_nan = 0
    for total in sums:
        num_nan += total != total  # noqa: PLR0124 - only NaN is not itself
    return num_nan > 0


@compiled
def _floor_below(score: float) -> float:
    """Return a number below all scores that rounding may have made ``score``."""
    return score - _SLACK - _RELATIVE_SLACK * abs(score)


@compiled
def _search_block(
    row: NDArray[np.float32],
    key: np.uint64,
    scale: float,
    first: int,
    drawn: np.uint64,
    most_noise: float,
    maxima: NDArray[np.float32],
    found: tuple[int, float, float, float],
) -> tuple[int, float, float, float]:
    """Return what is ``found`` with the block of the token ``first``, for which ``drawn`` was
    drawn, whose noise is at most ``most_noise`` and whose groups have the ``maxima`` ``[8]``: the
    winner, its score, the next highest score, and a floor that the winner's score reaches."""
    winner, best, runner_up, floor = found
    least = math.log(_uniform(drawn)) * (-1 / BLOCK_IDS)
    noisiest = first + np.int64(drawn & _PLACE) * BLOCK_STRIDE
    for group in range(NUM_GROUPS):
        if maxima[group] * scale + most_noise < floor:
            continue
        start = first + group * _GROUP_IDS * BLOCK_STRIDE
        end = min(start + _GROUP_IDS * BLOCK_STRIDE, row.size)
        for token in range(start, end, BLOCK_STRIDE):
            scaled = row[token] * scale
            if scaled + most_noise < floor:
                continue
            if token == noisiest:
                score = scaled - math.log(least)
            else:
                uniform = _uniform(_mixed(np.uint64(token), key))
                excess = max(0.0, -_rough_log(uniform) - _LOG_ERROR)
                if scaled - _rough_log(least + excess) + _LOG_ERROR < floor:
                    continue
                score = scaled - math.log(least - math.log(uniform))
            if score > best:
                winner, best, runner_up = token, score, best
                floor = max(floor, _floor_below(best))
            else:
                runner_up = max(runner_up, score)
    return winner, best, runner_up, floor


@inlined
def find_winner(row: NDArray[np.float32], key: np.uint64, scale: float) -> int:
    """Return the token with the highest ``scale`` * logit + Gumbel noise, or ``UNSURE``.

    ``row`` ``[vocab]`` holds the logits, ``key`` is that of the stream of noise, and ``scale`` 1 /
    temperature.
    """
    groups = np.empty((NUM_GROUPS, BLOCK_STRIDE), np.float32)
    bits = np.empty(BLOCK_STRIDE, np.uint64)
    noise, bounds = np.empty(BLOCK_STRIDE), np.empty(BLOCK_STRIDE)
    maxima = np.empty(_PART)
    # A logit that is NaN makes one of these NaN; it may leave the maxima as they are.
    sums = np.zeros(BLOCK_STRIDE, np.float32)
    found = (UNSURE, -np.inf, -np.inf, -1e300)
    for start in range(0, row.size, TILE_IDS):
        find_groups(row, start, groups, sums)
        _bound_blocks(start // TILE_IDS, key, scale, groups, bits, noise, bounds)
        for least in (_highest(bounds, maxima) - _LEAD, -np.inf):
            for part in range(0, BLOCK_STRIDE, _PART):
                floor, num_able = max(found[3], least), 0
                for column in range(part, part + _PART):
                    num_able += bounds[column] >= floor
                if not num_able:
                    continue
                for column in range(part, part + _PART):
                    if bounds[column] >= max(found[3], least):
                        bounds[column] = -np.inf
                        block = start + column, bits[column], noise[column], groups[:, column]
                        found = _search_block(row, key, scale, *block, found)
    winner, best, runner_up, _ = found
    is_sure = runner_up < _floor_below(best) < np.inf and not holds_nan(sums)
    return winner if is_sure else UNSURE
