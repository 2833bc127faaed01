"""From committed tokens to text, and where a stop string ends it.

What is said after a number of tokens is a function of those tokens alone, however they came
in chunks, so that a resumed stream goes on at the very character.
"""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream


class TextStream:
    """The text of one answer; holds back what may still change or turn into a stop string."""

    def __init__(
        self, tokenizer: Tokenizer, prompt: Sequence[int], stop_strings: Sequence[str]
    ) -> None:
        self._tokenizer = tokenizer
        # The prompt's last tokens decide whether the first word gets its space.
        self._decoder = DecodeStream(ids=list(prompt[-8:]), skip_special_tokens=True)
        self._stop_strings = tuple(stop_strings)
        self._held = ""
        self.stopped = False
        """Whether a stop string was met; nothing more is to be pushed then."""

    def push(self, token_id: int) -> str:
        """The text that ``token_id`` sets free."""
        text = self._held + (self._decoder.step(self._tokenizer, token_id) or "")
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
        held, self._held = self._held, ""
        return held

    def _undecided(self, text: str) -> int:
        """Length of the longest end of ``text`` that begins a stop string."""
        longest = max(map(len, self._stop_strings), default=0) - 1
        for length in range(min(longest, len(text)), 0, -1):
            if any(stop.startswith(text[-length:]) for stop in self._stop_strings):
                return length
        return 0
