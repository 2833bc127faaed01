"""How much of an answer repeats itself: small models go in loops at temperature 0."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

NUM_TOKENS: Final = 16
"""Longer than phrases that are common in a language: a line or two of code."""


def repeated_share(answers: Iterable[Sequence[int]]) -> float:
    """The share of the tokens of all ``answers`` that lie in a run of ``NUM_TOKENS`` tokens that
    has occurred before in the same answer, in [0, 1]; 0 if there are no tokens.

    The two runs may overlap, so that a loop counts from its second round on however short it is.
    """
    repeated = [is_repeated for tokens in answers for is_repeated in _repeated(tokens)]
    return sum(repeated) / len(repeated) if repeated else 0.0


def _repeated(tokens: Sequence[int]) -> list[bool]:
    """For each token whether it lies in such a run."""
    marked = [False] * len(tokens)
    seen: set[tuple[int, ...]] = set()
    for begin in range(len(tokens) - NUM_TOKENS + 1):
        run = tuple(tokens[begin : begin + NUM_TOKENS])
        if run in seen:
            marked[begin : begin + NUM_TOKENS] = [True] * NUM_TOKENS
        seen.add(run)
    return marked
