"""Masks of tokens: what a grammar allows at a position."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.floating[Any]]
Bits = NDArray[np.uint8]
"""A bit for each token, eight tokens a byte, the first token in the lowest bit."""

_INFINITY = np.float32(np.inf)
_LIMITS = np.where(
    np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little") == 1,
    _INFINITY,
    -_INFINITY,
)
"""The highest logits of eight tokens, by the byte that says which are allowed."""


class TokenMask(Protocol):
    """The tokens that may come next in one answer: a pure function of the tokens before them."""

    def allowed(self, path: Sequence[int]) -> Bits:
        """Return the tokens that may follow the answer's tokens in the prefix and then ``path``, at
        least one."""
        ...


def only_one(allowed: Bits) -> int | None:
    """Return the token that is ``allowed`` if there is just one, else None."""
    if np.count_nonzero(allowed) != 1:
        return None
    at = int(allowed.argmax())
    byte = int(allowed[at])
    return 8 * at + byte.bit_length() - 1 if byte.bit_count() == 1 else None


def only(allowed: Bits, logits: Values) -> Values:
    """Return ``logits`` ``[vocab]`` with minus infinity for every token that is not ``allowed``, or
    for which there is no bit."""
    limits = _LIMITS.take(allowed[: -(-logits.size // 8)], axis=0).ravel()
    if limits.size < logits.size:
        limits = np.append(limits, np.full(logits.size - limits.size, -_INFINITY))
    return np.minimum(logits, limits[: logits.size])
