"""Counter-based randomness: noise is looked up, never drawn.

Every number is a pure function of (seed, position, purpose, id), so every replica sees the same
noise, at any time and in any order. The generator is SplitMix64 (Steele, Lea, Flood: "Fast
Splittable Pseudorandom Number Generators", OOPSLA 2014), read at random access.

Gumbel noise is G = -log E, where E is an exponential variable of each id, and comes in blocks of 64
ids, so that the highest noise of a block is known without that of its ids: one draw of a block is
the least E of its ids, M, which is exponential with rate 64, and which id has it; the E of any
other id is M plus an exponential variable of its own. The E of all ids are independent and
exponential with rate 1. Proof: let E_1 ... E_n be so, M their minimum and J its index. For t >= 0,
P(J = j, M > t) is the integral of exp(-s) exp(-(n - 1) s) over s > t, which is exp(-n t) / n: M and
J are independent, M exponential with rate n, J uniform. Given J = j and M = m, the others are
independent and exceed m, so by memorylessness the excesses E_i - m are independent exponential
variables with rate 1, whatever j and m are. So the joint law of (M, J, excesses) is that of the
draws here; they determine the E, whose joint law is therefore that of E_1 ... E_n.

The draws and the uniforms are equal bit for bit on every machine. Gumbel noise goes through
``log``, which may differ in the last bit between kinds of CPU; that matters only where two tokens
tie to within 1e-15. So a device may look for the tokens that can win, with any ``log`` and some
slack, and the host decides among these few in float64.
"""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

BLOCK_IDS = 64
"""The number of ids in a block."""

BLOCK_STRIDE = 512
"""The distance of a block's ids, which are those of its tile that have one remainder: thus the
blocks of a row of logits are the columns of matrices, whose maxima are found fastest."""

TILE_IDS = BLOCK_IDS * BLOCK_STRIDE

SPAN = 45.0
"""More than the difference of any two numbers of ``gumbel``, which are between -3.7 and 40.9: a
token that is less likely than another by more nats never beats it."""

_STRIDE_BITS = 9
_TILE_BITS = 15

FIRST_BLOCK = 1 << 32
"""The number of the first block's draw; those below are draws of ids, which fit in 32 bits."""

_MASK = (1 << 64) - 1
GOLDEN_GAMMA = 0x9E3779B97F4A7C15
MIX_1 = 0xBF58476D1CE4E5B9
MIX_2 = 0x94D049BB133111EB

# Of numpy's own type, which spares a conversion with every use.
_GAMMA = np.uint64(GOLDEN_GAMMA)
_ROUNDS = ((np.uint64(30), np.uint64(MIX_1)), (np.uint64(27), np.uint64(MIX_2)))
_LAST_SHIFT = np.uint64(31)
_PLACE, _LOW_BITS = np.uint64(BLOCK_IDS - 1), np.uint64(12)
_ONE = np.float64(1).view(np.uint64)


class Purpose(IntEnum):
    """The purposes of noise, which are independent of each other. Their numbers never change."""

    COUPLED = 0
    """Coupled mode: noise shared by target and drafter; ids are tokens."""
    DRAFT = 1
    """Rejection mode: the drafter's own draws; ids are tokens."""
    ACCEPT = 2
    """Rejection mode: whether a draft token is accepted; ids are tokens."""
    RESIDUAL = 3
    """Rejection mode: the target's own token, recovered or bonus; ids are tokens."""
    PREDICT = 4
    """The number of draft tokens that a predictor expects to be accepted; by round, not by
    position."""


def uniforms(
    seed: int, position: int, purpose: Purpose, ids: NDArray[np.integer[Any]]
) -> NDArray[np.float64]:
    """Return uniform noise strictly inside (0, 1), one number for each of ``ids`` ``[n]``.

    ``seed`` is any uint64, ``position`` counts tokens from the start of the text.
    """
    return _uniform(_outputs(stream_key(seed, position, purpose), ids))


def gumbel(
    seed: int, position: int, purpose: Purpose, ids: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return standard Gumbel noise, one number for each of ``ids`` ``[n]``, between -3.7 and 40.9.

    argmax(log p + Gumbel) is a draw from p, and the k largest are k draws without
    replacement (Yellott 1977; Kool et al. 2019).
    """
    numbers = np.concatenate([blocks_of(ids) | FIRST_BLOCK, ids])
    bits = _outputs(stream_key(seed, position, purpose), numbers)
    won = _places(bits[: ids.size] ^ (ids >> _STRIDE_BITS).view(np.uint64)) == 0
    logs = _logs(bits)
    least, excess = logs[: ids.size], logs[ids.size :]
    excess[won] = 0
    return _gumbel(least, excess)


def gumbel_below(seed: int, position: int, purpose: Purpose, num_ids: int) -> NDArray[np.float64]:
    """Return the ``gumbel`` noise of the ids below ``num_ids``, of which there is at most a
    tile."""
    num_rows = -(-num_ids // BLOCK_STRIDE)
    bits = _mixed(stream_key(seed, position, purpose), _tile_counters(num_rows))
    places = _places(bits[:BLOCK_STRIDE])
    logs = _logs(bits)
    excess = logs[BLOCK_STRIDE:].reshape(num_rows, BLOCK_STRIDE)
    inside = (places < num_rows).nonzero()[0]
    excess[places[inside], inside] = 0
    return _gumbel(logs[:BLOCK_STRIDE], excess).ravel()[:num_ids]


class BlockNoise:
    """The ``gumbel`` noise of the stream with ``key``, for the first ``num_blocks`` blocks of ids.

    ``highest`` ``[num_blocks]`` is the highest noise in each block, ``winners`` the id that has it
    and ``least`` its exponential variable.
    """

    def __init__(self, key: int, num_blocks: int) -> None:
        self._key = key
        bits = _mixed(key, _block_counters(num_blocks))
        self.winners = _places(bits)
        self.winners <<= _STRIDE_BITS
        self.winners += first_ids(num_blocks)
        self._logs = _logs(bits)
        self.least = self._logs * (-1 / BLOCK_IDS)
        self.highest = -np.log(self.least)

    def at(self, ids: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the noise of ``ids`` ``[n]`` in these blocks, equal to that of ``gumbel``."""
        blocks = blocks_of(ids)
        excess = _logs(_outputs(self._key, ids))
        excess[self.winners.take(blocks) == ids] = 0
        return _gumbel(self._logs.take(blocks), excess)


def blocks_of(ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number of the block of each of ``ids``."""
    blocks = ids >> _TILE_BITS
    blocks <<= _STRIDE_BITS
    blocks |= ids & BLOCK_STRIDE - 1
    return blocks


@lru_cache(maxsize=16)
def first_ids(num_blocks: int) -> NDArray[np.int64]:
    """Return the first id of each of the first blocks; the others follow at ``BLOCK_STRIDE``."""
    blocks = np.arange(num_blocks)
    return _fixed((blocks >> _STRIDE_BITS << _TILE_BITS) + (blocks & BLOCK_STRIDE - 1))


def _places(bits: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the places of the ids with the least exponential variables of their blocks: the low 6
    bits, of which the uniform numbers have none."""
    return (bits & _PLACE).view(np.int64)


def _logs(bits: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Return the logarithms of uniform noise, which overwrite ``bits``."""
    noise = _uniform(bits)
    return np.log(noise, out=noise)


def _gumbel(least: NDArray[np.float64], excess: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the noise -log E, given the logarithms of the uniform noise of the blocks and of the
    ids. Writes to ``excess``."""
    np.subtract(least * (-1 / BLOCK_IDS), excess, out=excess)
    np.log(excess, out=excess)
    return np.negative(excess, out=excess)


def _uniform(bits: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Return uniform noise, which overwrites ``bits``: with the top 52 bits k, (k + 1/2) / 2**52.

    These midpoints of equal cells are exact in float64 and touch neither 0 nor 1.
    """
    bits >>= _LOW_BITS
    bits |= _ONE  # Now 1 + k / 2**52, as float64.
    noise = bits.view(np.float64)
    noise -= 1 - 2.0**-53
    return noise


def stream_key(seed: int, position: int, purpose: Purpose) -> int:
    """Return the seed, a uint64, of the generator whose outputs are the noise of a stream."""
    key = 0
    for word in (seed, position, purpose):
        key = _finalise((key ^ word) + GOLDEN_GAMMA & _MASK)
    return key


def _finalise(z: int) -> int:
    z = (z ^ (z >> 30)) * MIX_1 & _MASK
    z = (z ^ (z >> 27)) * MIX_2 & _MASK
    return z ^ (z >> 31)


def _outputs(key: int, numbers: NDArray[np.integer[Any]]) -> NDArray[np.uint64]:
    """Return the outputs ``numbers`` (from 0) of SplitMix64, seeded with ``key``."""
    return _mixed_in_place(_states(key, numbers))


def _states(key: int, numbers: NDArray[np.integer[Any]]) -> NDArray[np.uint64]:
    """Return the states of SplitMix64, seeded with ``key``, at outputs ``numbers`` (from 0)."""
    states = numbers.astype(np.uint64)
    states *= _GAMMA
    states += np.uint64(key + GOLDEN_GAMMA & _MASK)
    return states


@lru_cache(maxsize=16)
def _block_counters(num_blocks: int) -> NDArray[np.uint64]:
    return _fixed(_states(0, np.arange(num_blocks) | FIRST_BLOCK))


@lru_cache(maxsize=16)
def _tile_counters(num_rows: int) -> NDArray[np.uint64]:
    """Return the counters of the first blocks and of their ids at the first ``num_rows`` places."""
    ids = _states(0, np.arange(num_rows * BLOCK_STRIDE))
    return _fixed(np.concatenate([_block_counters(BLOCK_STRIDE), ids]))


def _fixed(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array


def _mixed(key: int, counters: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the outputs of SplitMix64, seeded with ``key``, at the states ``counters`` of the seed
    0."""
    return _mixed_in_place(counters + np.uint64(key))


def _mixed_in_place(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    shifted = np.empty_like(z)
    for shift, factor in _ROUNDS:
        z ^= np.right_shift(z, shift, out=shifted)
        z *= factor
    z ^= np.right_shift(z, _LAST_SHIFT, out=shifted)
    return z
