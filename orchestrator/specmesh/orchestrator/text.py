"""From committed tokens to text, and where a stop string ends it.

What is said after a number of tokens is a function of those tokens alone, however they came
in chunks, so that a resumed stream goes on at the very character.
"""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import Tokenizer

CONTEXT_TOKENS = 8
"""How much of the prompt decides whether the answer's first word gets its space."""

INCOMPLETE = "\ufffd"
"""Stands for bytes that make no character, or not yet."""


class TextStream:
    """The text of one answer; holds back what may still change or turn into a stop string."""

    def __init__(
        self, tokenizer: Tokenizer, prompt: Sequence[int], stop_strings: Sequence[str]
    ) -> None:
        self._decoder = _Decoder(tokenizer, prompt[-CONTEXT_TOKENS:])
        self._stop_strings = tuple(stop_strings)
        self._held = ""
        self.stopped = False
        """Whether a stop string was met; nothing more is to be pushed then."""

    def push(self, token_id: int) -> str:
        """The text that ``token_id`` sets free."""
        text = self._held + self._decoder.push(token_id)
        ends = [at for stop in self._stop_strings if (at := text.find(stop)) >= 0]
        if ends:
            self.stopped = True
            self._held = ""
            return text[: min(ends)]
        free = len(text) - self._undecided(text)
        self._held = text[free:]
        return text[:free]

    def flush(self) -> str:
        """What was held back, now that no more comes."""
        held, self._held = self._held + self._decoder.flush(), ""
        return held

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
    within a character, and cannot be flushed.
    """

    def __init__(self, tokenizer: Tokenizer, context: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self._window = list(context)
        self._mark()

    def push(self, token_id: int) -> str:
        """The whole characters that the token completes."""
        self._window.append(token_id)
        text = self._text()
        if text.endswith(INCOMPLETE) or len(text) <= len(self._said):
            return ""
        new = text[len(self._said) :]
        del self._window[: self._num_said]
        self._mark()
        return new

    def flush(self) -> str:
        """What is incomplete, as it stands."""
        rest = self._text()[len(self._said) :]
        self._mark()
        return rest

    def _mark(self) -> None:
        self._said, self._num_said = self._text(), len(self._window)

    def _text(self) -> str:
        return self._tokenizer.decode(self._window)
