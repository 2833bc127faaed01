"""From committed tokens to text, and where a stop string ends it.

What is said after a number of tokens is a function of those tokens alone, however they came
in chunks, so that a resumed stream goes on at the very character.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from tokenizers import Tokenizer

CONTEXT_TOKENS = 8
"""How much of the prompt decides whether the answer's first word gets its space."""

INCOMPLETE = "\ufffd"
"""Stands for bytes that make no character, or not yet."""

BYTE_TOKENS = (("<0x80>", "<0xBF>"), ("\u0122", "\u00bf"))
"""The bytes 80 and BF as tokens: of SentencePiece, of GPT-2."""


class TextStream:
    """The text of one answer; holds back what may still change or turn into a stop string.

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
        """Whether a stop string was met; nothing more is to be pushed then."""

    def push(self, token_id: int) -> str:
        """The text that ``token_id`` sets free."""
        return self._free(self._decoder.push(token_id))

    def flush(self) -> str:
        """What was held back, now that no more comes; it too may hold a stop string."""
        if self.stopped:
            return ""
        free = self._free(self._decoder.flush())
        held, self._held = self._held, ""
        return free + held

    def _free(self, new: str) -> str:
        """What can be said now that ``new`` is certain."""
        text = self._held + new
        end = self._end(text)
        self.stopped = end is not None
        if end is None:
            end = len(text) - self._undecided(text)
        self._held = "" if self.stopped else text[end:]
        return text[:end]

    def _end(self, text: str) -> int | None:
        """Where a stop string ends ``text``; None if it holds none."""
        found = [
            (at + len(stop), at) for stop in self._stop_strings if (at := text.find(stop)) >= 0
        ]
        return min(found)[1] if found else None

    def _undecided(self, text: str) -> int:
        """Length of the longest end of ``text`` that begins a stop string."""
        longest = max(map(len, self._stop_strings), default=0) - 1
        for length in range(min(longest, len(text)), 0, -1):
            if any(stop.startswith(text[-length:]) for stop in self._stop_strings):
                return length
        return 0


class _Decoder:
    """Decodes token by token, each within a window of the tokens just before it.

    The ``DecodeStream`` of tokenizers would repeat the end of a prompt that ends in U+FFFD or
    within a character, hold a whole token back for half a character at its end, and cannot be
    flushed.
    """

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self._completions = _completions(tokenizer)
        self._window = _context(tokenizer, prompt, self._completions)
        self._num_said = len(self._window)
        # A character that the prompt breaks off in is the prompt's.
        self._said: str = tokenizer.decode(self._window)

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
        """What is incomplete, as it stands."""
        return self._rest()

    def _rest(self, completion: Sequence[int] = ()) -> str:
        """What the window and ``completion`` say beyond what is said."""
        tokens = [*self._window, *completion]
        rest: str = self._tokenizer.decode(tokens)[len(self._said) :]
        if INCOMPLETE in rest:
            # SentencePiece decodes bytes in a row as a whole, so that one that is invalid
            # spoils the characters before and after it.
            alone: str = self._tokenizer.decode(tokens[self._num_said :])
            if alone.count(INCOMPLETE) < rest.count(INCOMPLETE):
                return alone
        return rest

    def _certain(self, rest: str) -> str:
        """``rest`` without the character that it breaks off in, if any.

        There is one if continuation bytes can complete it. Invalid bytes, and a U+FFFD that
        the model wrote, can't be completed.
        """
        if not rest.endswith(INCOMPLETE):
            return rest
        for completion in self._completions:
            completed = self._rest(completion)
            if not completed.endswith(INCOMPLETE):
                return completed[:-1]
        return rest if self._completions else rest[:-1]

    def _move_on(self, certain: str, *, whole: bool) -> None:
        """``certain`` is said. The window keeps what came since the last time, for that begins
        with a character; only its last token can hold one that is not complete."""
        if certain:
            del self._window[: self._num_said]
        self._num_said = len(self._window) - (not whole)
        text = self._tokenizer.decode(self._window)
        self._said = text if whole else text[:-1]

    def _is_special(self, token_id: int) -> bool:
        """Whether it says nothing; a window of such tokens would grow for ever."""
        shown = self._tokenizer.decode([token_id], skip_special_tokens=False)
        return bool(shown) and not self._tokenizer.decode([token_id])


def _context(
    tokenizer: Tokenizer, prompt: Sequence[int], completions: Sequence[Sequence[int]]
) -> list[int]:
    """The prompt's end, from where a character begins if it does anywhere in it."""
    ends = [list(prompt[-length:]) for length in range(CONTEXT_TOKENS, 0, -1)]
    for end, completion in product(ends, ((), *completions)):
        if not tokenizer.decode([*end, *completion]).startswith(INCOMPLETE):
            return end
    return ends[0]


def _completions(tokenizer: Tokenizer) -> list[list[int]]:
    """Tokens that complete any character broken off, each in one of the ways.

    After E0 and F0 only the upper continuation bytes are valid, after ED and F4 only the
    lower. Empty for a vocabulary without those bytes.
    """
    for names in BYTE_TOKENS:
        low, high = (tokenizer.token_to_id(name) for name in names)
        if low is not None and high is not None and tokenizer.decode([low]) == INCOMPLETE:
            return [[low], [low, low], [high, low], [low, low, low], [high, low, low]]
    return []
