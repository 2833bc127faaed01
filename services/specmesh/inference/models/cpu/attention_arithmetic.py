"""The arithmetic of attention to a block of 16 tokens, compiled by numba.

The loops over scores are written so that LLVM computes several at a time: without calls of a
library.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np

from specmesh.decoding.compiled.intrinsics import prefetch
from specmesh.decoding.prefix import BLOCK_TOKENS
from specmesh.inference.models.cpu.attention_vectors import (
    NUM_KEYS,
    NUM_VALUES,
    add_products,
    products,
)

FASTMATH = ("reassoc", "contract", "nsz", "arcp")
"""Sums may be taken in any order. NaN and infinity keep their meaning."""

NONE = np.float32(-np.inf)
"""The score of a token that is not attended to."""

_CACHE_LINE_BYTES = 64
_LEAST = np.float32(-126)
"""The least exponent of a normal float32; powers below are taken for 0."""
_POWERS = tuple(np.float32(math.log(2) ** k / math.factorial(k)) for k in range(7))
"""The Taylor series of 2 ** x."""
_BIAS, _MANTISSA_BITS = np.int32(127), np.int32(23)
_HALF = np.float32(0.5)

inlined = numba.njit(error_model="numpy", inline="always", fastmath=set(FASTMATH))


@inlined
def power_of_2(x: Any) -> Any:
    """Return 2 ** x for x up to 0, with an error of the last bit or two. ``math.exp2`` is a call of
    a library, which keeps a loop from being computed several elements at a time."""
    bounded = max(x, _LEAST)
    whole = np.float32(math.floor(bounded + _HALF))
    rest = bounded - whole
    power = _POWERS[6]
    power = power * rest + _POWERS[5]
    power = power * rest + _POWERS[4]
    power = power * rest + _POWERS[3]
    power = power * rest + _POWERS[2]
    power = power * rest + _POWERS[1]
    power = power * rest + _POWERS[0]
    scaled = power * np.int32((np.int32(whole) + _BIAS) << _MANTISSA_BITS).view(np.float32)
    return np.float32(0) if x < _LEAST else scaled


@inlined
def ask_for(numbers: Any, block: int) -> None:
    """Have ``block`` of a layer's keys or values come from memory while others are in use."""
    wanted = numbers[block * BLOCK_TOKENS : (block + 1) * BLOCK_TOKENS].reshape(-1)
    for number in range(0, wanted.size, _CACHE_LINE_BYTES // wanted.itemsize):
        prefetch(wanted, number)


@inlined
def score(queries: Any, keys: Any, first: int, last: int, scores: Any, start: int) -> None:
    """Write the scores of a block of ``keys`` ``[16, head_dim]`` for ``queries`` ``[rows,
    head_dim]`` to ``scores`` ``[rows, tokens]`` from token ``start`` on. Keys before ``first`` and
    after ``last`` are not read: their scores are those of others."""
    for token in range(0, BLOCK_TOKENS, NUM_KEYS):
        tokens = (
            max(first, min(token, last)),
            max(first, min(token + 1, last)),
            max(first, min(token + 2, last)),
            max(first, min(token + 3, last)),
        )
        for row in range(queries.shape[0]):
            found = products(queries[row], keys, tokens)
            for number in range(NUM_KEYS):
                scores[row, start + token + number] = found[number]


@inlined
def highest_of(scores: Any, columns: Any) -> Any:
    """Return the highest of ``scores``, of whole blocks; ``columns`` ``[16]`` are written to. A
    plain maximum is not computed several elements at a time, since one may be NaN."""
    for column in range(BLOCK_TOKENS):
        columns[column] = scores[column]
    for first in range(BLOCK_TOKENS, scores.size, BLOCK_TOKENS):
        for column in range(BLOCK_TOKENS):
            columns[column] = max(columns[column], scores[first + column])
    highest = NONE
    for column in range(BLOCK_TOKENS):
        highest = max(highest, columns[column])
    return highest


@inlined
def soften(scores: Any, highest: Any, factor: Any) -> Any:
    """Put 2 ** (factor * (score - highest)) in place of each score; return their sum."""
    total = np.float32(0)
    for token in range(scores.size):
        power = power_of_2((scores[token] - highest) * factor)
        scores[token] = power
        total += power
    return total


@inlined
def add_values(weights: Any, start: int, values: Any, first: int, last: int, results: Any) -> None:
    """Add a block of ``values`` ``[16, head_dim]`` to ``results`` ``[rows, head_dim]``, with
    ``weights`` ``[rows, tokens]`` from token ``start`` on. Values before ``first`` and after
    ``last``, whose weights are 0, are not read."""
    for token in range(0, BLOCK_TOKENS, NUM_VALUES):
        tokens = (
            max(first, min(token, last)),
            max(first, min(token + 1, last)),
            max(first, min(token + 2, last)),
            max(first, min(token + 3, last)),
            max(first, min(token + 4, last)),
            max(first, min(token + 5, last)),
            max(first, min(token + 6, last)),
            max(first, min(token + 7, last)),
        )
        for row in range(results.shape[0]):
            add_products(results[row], weights[row], start + token, values, tokens)
