"""Places where texts spell special tokens."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import cached_property


class Spellings:
    """Finds the ``special_tokens`` in texts; a model may have thousands of them."""

    def __init__(self, special_tokens: Collection[str]) -> None:
        self._tokens = frozenset(filter(None, special_tokens))
        self._lengths = sorted({len(token) for token in self._tokens}, reverse=True)
        first = "".join(sorted({re.escape(token[0]) for token in self._tokens}))
        self._first = re.compile(f"[{first}]" if first else "(?!)")

    def found(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the start and end of the special tokens in ``text`` as a tokenizer finds them: of
        overlapping ones the first, of those with the same start the longest."""
        free = 0
        for match in self._first.finditer(text):
            start = match.start()
            if start >= free and (length := self._length_at(start, text)):
                free = start + length
                yield start, free

    def beginnings(self, text: str) -> Iterator[int]:
        """Yield where special tokens begin in ``text``, overlapping or not, and where ``text``
        breaks off within one that further text may complete; trailing spaces don't count."""
        end = len(text.rstrip())
        may_break_off = end - max(self._lengths, default=0)
        for match in self._first.finditer(text):
            start = match.start()
            if self._length_at(start, text) or (
                start > may_break_off and text[start:end] in self._broken_off
            ):
                yield start

    def _length_at(self, start: int, text: str) -> int:
        """Return the length of the longest special token that begins there; 0 if none does."""
        lengths = (each for each in self._lengths if text[start : start + each] in self._tokens)
        return next(lengths, 0)

    @cached_property
    def _broken_off(self) -> frozenset[str]:
        return frozenset(token[:end] for token in self._tokens for end in range(1, len(token)))
