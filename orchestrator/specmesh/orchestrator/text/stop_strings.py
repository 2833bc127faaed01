"""Finds the stop strings of an answer in the text of its tokens, character by character."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from itertools import accumulate
from typing import NamedTuple

from specmesh.orchestrator.text.token_bytes import TokenBytes

Symbol = str | int
"""A character of the text, or the id of a special token, which adds none."""


class StopMatch(NamedTuple):
    """A stop string that is complete, and the number of its characters in the text."""

    stop_string: str
    num_characters: int


class StopStrings:
    """Searches one answer for stop strings.

    A stop string that spells special tokens is found both where the answer's text spells them out
    and where the answer has those tokens. Tokens that are ``kept`` spell themselves out.
    """

    def __init__(
        self, stop_strings: Sequence[str], token_bytes: TokenBytes, kept: Set[int] = frozenset()
    ) -> None:
        self._patterns = [_Pattern(stop, stop) for stop in stop_strings]
        spelled = [(stop, token_bytes.spelled(stop, kept)) for stop in stop_strings]
        self._patterns += [_Pattern(stop, each) for stop, each in spelled if _special_tokens(each)]

    def push(self, symbol: Symbol) -> StopMatch | None:
        """Return the longest stop string, by characters, that ``symbol`` completes; None if it
        completes none."""
        completed = [pattern for pattern in self._patterns if pattern.push(symbol)]
        if not completed:
            return None
        longest = max(completed, key=lambda pattern: pattern.num_characters)
        return StopMatch(longest.stop_string, longest.num_characters)

    @property
    def num_undecided(self) -> int:
        """Length of the longest end of the text that may be the beginning of a stop string."""
        return max((pattern.num_characters for pattern in self._patterns), default=0)


class _Pattern:
    """The ``symbols`` of one stop string, matched by the algorithm of Knuth, Morris and Pratt."""

    def __init__(self, stop_string: str, symbols: Sequence[Symbol]) -> None:
        self.stop_string = stop_string
        self._symbols = symbols
        self._heeds_special_tokens = _special_tokens(symbols)
        self._num_characters = list(
            accumulate((isinstance(each, str) for each in symbols), initial=0)
        )
        self._shorter = _shorter_matches(symbols)
        self._num_matched = 0

    def push(self, symbol: Symbol) -> bool:
        """Return whether ``symbol`` completes the stop string."""
        if isinstance(symbol, int) and not self._heeds_special_tokens:
            return False
        self._num_matched = _extended(self._symbols, self._shorter, self._num_matched, symbol)
        return self._num_matched == len(self._symbols)

    @property
    def num_characters(self) -> int:
        """Number of characters in the matched beginning of the stop string."""
        return self._num_characters[self._num_matched]


def _special_tokens(symbols: Iterable[Symbol]) -> bool:
    return any(isinstance(symbol, int) for symbol in symbols)


def _shorter_matches(symbols: Sequence[Symbol]) -> list[int]:
    """Return, for each length of a beginning, the length of the longest shorter beginning that is a
    suffix of it."""
    shorter = [0, 0]
    for symbol in symbols[1:]:
        shorter.append(_extended(symbols, shorter, shorter[-1], symbol))
    return shorter


def _extended(
    symbols: Sequence[Symbol], shorter: Sequence[int], num_matched: int, symbol: Symbol
) -> int:
    """Return how many of ``symbols`` match once ``symbol`` follows ``num_matched`` of them."""
    while num_matched == len(symbols) or symbols[num_matched] != symbol:
        if num_matched == 0:
            return 0
        num_matched = shorter[num_matched]
    return num_matched + 1
