"""Counter-based randomness: noise is looked up, never drawn.

Every number is a pure function of (seed, position, purpose, id), so every replica sees the same
noise, at any time and in any order. The generator is SplitMix64 (Steele, Lea, Flood: "Fast
Splittable Pseudorandom Number Generators", OOPSLA 2014), read at random access.

The uniforms are equal bit for bit on every machine. Gumbel noise goes through ``log``, which
may differ in the last bit between kinds of CPU; that matters only where two tokens tie to
within 1e-15.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MASK = (1 << 64) - 1
_GOLDEN_GAMMA = 0x9E3779B97F4A7C15
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB


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
    bits = _splitmix64(_stream_key(seed, position, purpose), ids)
    # Keep the top 53 bits with the last one set: midpoints of 2**52 equal cells are exact in
    # float64 and touch neither 0 nor 1.
    bits >>= np.uint64(11)
    bits |= np.uint64(1)
    noise = bits.astype(np.float64)
    noise *= 2.0**-53
    return noise


def gumbel(
    seed: int, position: int, purpose: Purpose, ids: NDArray[np.integer[Any]]
) -> NDArray[np.float64]:
    """Return standard Gumbel noise, one number for each of ``ids`` ``[n]``, between -3.7 and 36.8.

    argmax(log p + Gumbel) is a draw from p, and the k largest are k draws without
    replacement (Yellott 1977; Kool et al. 2019).
    """
    noise = uniforms(seed, position, purpose, ids)
    np.log(noise, out=noise)
    np.negative(noise, out=noise)
    np.log(noise, out=noise)
    return np.negative(noise, out=noise)


def _stream_key(seed: int, position: int, purpose: Purpose) -> int:
    key = 0
    for word in (seed, position, purpose):
        key = _finalise((key ^ word) + _GOLDEN_GAMMA & _MASK)
    return key


def _finalise(z: int) -> int:
    z = (z ^ (z >> 30)) * _MIX_1 & _MASK
    z = (z ^ (z >> 27)) * _MIX_2 & _MASK
    return z ^ (z >> 31)


def _splitmix64(key: int, ids: NDArray[np.integer[Any]]) -> NDArray[np.uint64]:
    """Return outputs number ``ids`` (from 0) of the SplitMix64 stream seeded with ``key``."""
    z = ids.astype(np.uint64)
    z *= np.uint64(_GOLDEN_GAMMA)
    z += np.uint64((key + _GOLDEN_GAMMA) & _MASK)
    z ^= z >> np.uint64(30)
    z *= np.uint64(_MIX_1)
    z ^= z >> np.uint64(27)
    z *= np.uint64(_MIX_2)
    z ^= z >> np.uint64(31)
    return z
