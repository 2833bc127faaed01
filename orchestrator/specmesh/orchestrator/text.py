"""Decodes committed tokens to text, and ends it at a stop string.

The text emitted after n tokens is a function of those tokens alone, however they were chunked, so
that a resumed stream continues at the very character.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from tokenizers import Tokenizer

CONTEXT_TOKENS = 8
"""How much of the prompt decides whether the answer's first word begins with a space."""

INCOMPLETE = "\ufffd"
"""The replacement character: for bytes that form no character, or not yet."""

BYTE_TOKENS = (("<0x80>", "<0xBF>"), ("\u0122", "\u00bf"))
"""The bytes 80 and BF as tokens, as SentencePiece and as GPT-2 spell them."""


class TextStream:
    """The text of one answer; holds back what may still change or become a stop string.

    The text ends before the stop string that is complete first; of several that end with the
    same character, before the longest.
    """

    def __init__(
        self, tokenizer: Tokenizer, prompt: Sequence[int], stop_strings: Sequence[str]
    ) -> None:
        self._decoder = _Decoder(tokenizer, prompt)
        self._stop_strings = tuple(stop_strings)
        self._held = ""
        self.stopped = False
        """Whether a stop string was found; no more tokens may be pushed then."""

    def push(self, token_id: int) -> str:
        """The text that can be emitted after ``token_id``."""
        return self._emit(self._decoder.push(token_id))

    def flush(self) -> str:
        """The text held back, once no more tokens come; it may hold a stop string, too."""
        if self.stopped:
            return ""
        text = self._emit(self._decoder.flush())
        held, self._held = self._held, ""
        return text + held

    def _emit(self, new: str) -> str:
        """The text that can be emitted now that ``new`` is certain."""
        text = self._held + new
        end = self._end(text)
        self.stopped = end is not None
        if end is None:
            end = len(text) - self._undecided(text)
        self._held = "" if self.stopped else text[end:]
        return text[:end]

    def _end(self, text: str) -> int | None:
        """Index of the stop string that ends ``text``; None if it holds none."""
        found = [
            (at + len(stop), at) for stop in self._stop_strings if (at := text.find(stop)) >= 0
        ]
        return min(found)[1] if found else None

    def _undecided(self, text: str) -> int:
        """Length of the longest suffix of ``text`` that a stop string may begin with."""
        longest = max(map(len, self._stop_strings), default=0) - 1
        for length in range(min(longest, len(text)), 0, -1):
            if any(stop.startswith(text[-length:]) for stop in self._stop_strings):
                return length
        return 0


class _Decoder:
    """Decodes token by token, each within a window of the tokens just before it.

    The ``DecodeStream`` of tokenizers would repeat the end of a prompt that ends in U+FFFD or
    within a character, would hold back a whole token that ends within a character, and cannot be
    flushed.
    """

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self._completions = _completions(tokenizer)
        self._window = _context(tokenizer, prompt, self._completions)
        self._num_emitted = len(self._window)
        # A character that the prompt ends within belongs to the prompt.
        self._emitted: str = tokenizer.decode(self._window)

    def push(self, token_id: int) -> str:
        """The text that the token makes certain: no later one can change it."""
        self._window.append(token_id)
        rest = self._rest()
        certain = self._certain(rest)
        if not rest and self._is_special(token_id):
            self._window.pop()
        elif certain or not rest:
            self._move_on(certain, whole=certain == rest)
        return certain

    def flush(self) -> str:
        """The text of an incomplete character at the end."""
        return self._rest()

    def _rest(self, completion: Sequence[int] = ()) -> str:
        """The text of the window and ``completion`` after what has been emitted."""
        tokens = [*self._window, *completion]
        rest: str = self._tokenizer.decode(tokens)[len(self._emitted) :]
        if INCOMPLETE in rest:
            # SentencePiece decodes a run of byte tokens as a whole, so that an invalid byte
            # spoils the characters before and after it.
            alone: str = self._tokenizer.decode(tokens[self._num_emitted :])
            if alone.count(INCOMPLETE) < rest.count(INCOMPLETE):
                return alone
        return rest

    def _certain(self, rest: str) -> str:
        """``rest`` without the incomplete character at its end, if any.

        A character is incomplete if continuation bytes can complete it. Invalid bytes, and a
        U+FFFD that the model wrote, can't be completed.
        """
        if not rest.endswith(INCOMPLETE):
            return rest
        for completion in self._completions:
            completed = self._rest(completion)
            if not completed.endswith(INCOMPLETE):
                return completed[:-1]
        return rest if self._completions else rest[:-1]

    def _move_on(self, certain: str, *, whole: bool) -> None:
        """Count ``certain`` as emitted. The window keeps the tokens since the last time, which
        begin with a character; only the last of them can hold an incomplete one."""
        if certain:
            del self._window[: self._num_emitted]
        self._num_emitted = len(self._window) - (not whole)
        text = self._tokenizer.decode(self._window)
        self._emitted = text if whole else text[:-1]

    def _is_special(self, token_id: int) -> bool:
        """Whether the token has no text; a window of such tokens would grow forever."""
        shown = self._tokenizer.decode([token_id], skip_special_tokens=False)
        return bool(shown) and not self._tokenizer.decode([token_id])


def _context(
    tokenizer: Tokenizer, prompt: Sequence[int], completions: Sequence[Sequence[int]]
) -> list[int]:
    """The end of the prompt, starting where a character begins, if any does in it."""
    ends = [list(prompt[-length:]) for length in range(CONTEXT_TOKENS, 0, -1)]
    for end, completion in product(ends, ((), *completions)):
        if not tokenizer.decode([*end, *completion]).startswith(INCOMPLETE):
            return end
    return ends[0]


def _completions(tokenizer: Tokenizer) -> list[list[int]]:
    """Sequences of byte tokens, one of which completes any incomplete character.

    After E0 and F0 only the upper continuation bytes are valid, after ED and F4 only the
    lower. Empty for a vocabulary without those bytes.
    """
    for names in BYTE_TOKENS:
        low, high = (tokenizer.token_to_id(name) for name in names)
        if low is not None and high is not None and tokenizer.decode([low]) == INCOMPLETE:
            return [[low], [low, low], [high, low], [low, low, low], [high, low, low]]
    return []
