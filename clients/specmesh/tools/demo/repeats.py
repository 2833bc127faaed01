"""The share of an answer that repeats itself: small models loop at temperature 0."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

NUM_TOKENS: Final = 16
"""Longer than common phrases of a language: a line or two of code."""


def repeated_share(answers: Iterable[Sequence[int]]) -> float:
    """Return the share of tokens that lie in a run of ``NUM_TOKENS`` tokens that occurred before in
    the same answer, over all ``answers``; 0 without tokens.

    The two runs may overlap, so a loop of any length counts from its second round on.
    """
    repeated = [is_repeated for tokens in answers for is_repeated in _repeated(tokens)]
    return sum(repeated) / len(repeated) if repeated else 0.0


def _repeated(tokens: Sequence[int]) -> list[bool]:
    """Return for each token whether it lies in such a run."""
    marked = [False] * len(tokens)
    seen: set[tuple[int, ...]] = set()
    for begin in range(len(tokens) - NUM_TOKENS + 1):
        run = tuple(tokens[begin : begin + NUM_TOKENS])
        if run in seen:
            marked[begin : begin + NUM_TOKENS] = [True] * NUM_TOKENS
        seen.add(run)
    return marked
