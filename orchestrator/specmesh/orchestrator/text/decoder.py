"""Decodes committed tokens to text, and ends it at a stop string.

The text emitted after n tokens is a function of those tokens alone, however they were chunked, so
that a resumed stream continues at exactly the right character.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence, Set

from specmesh.orchestrator.text.stop_strings import StopStrings, Symbol
from specmesh.orchestrator.text.token_bytes import INCOMPLETE, TokenBytes

LONGEST_CHARACTER = 4
"""Most bytes of a character in UTF-8."""

EACH_BYTE = "specmesh.each-byte"
"""The name of a handler for Python's decoders that replaces invalid UTF-8 byte by byte, as
SentencePiece does. Python's own handler ("replace") replaces a broken-off sequence by a single
character, as GPT-2's decoder does."""


def _replace_each_byte(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return INCOMPLETE * (error.end - error.start), error.end


codecs.register_error(EACH_BYTE, _replace_each_byte)


class TextStream:
    """The text of one answer; holds back what may still change or become a stop string.

    The stop string that is complete first ends the text; of several that end with the same
    character, the longest. Special tokens add no text, except for those that are ``kept``.
    """

    def __init__(
        self,
        token_bytes: TokenBytes,
        prompt: Sequence[int],
        stop_strings: Sequence[str],
        kept: Set[int] = frozenset(),
        min_tokens: int = 0,
        *,
        include_stop: bool = False,
    ) -> None:
        """Begin the text after ``prompt``. Stop strings that one of the first ``min_tokens`` tokens
        completes are ignored. With ``include_stop`` the text ends behind the stop string."""
        self._token_bytes = token_bytes
        self._kept = kept
        self._context = token_bytes.context(prompt)
        self._characters = _Characters(
            _broken_off(token_bytes, prompt), EACH_BYTE if token_bytes.has_fallback else "replace"
        )
        self._stop_strings = StopStrings(stop_strings, token_bytes, kept) if stop_strings else None
        self._include_stop = include_stop
        self._num_unstopped = min_tokens
        """The number of next tokens that can't complete a stop string."""
        self._held = ""
        self.num_characters = 0
        """Characters that the tokens have completed so far, emitted or not."""
        self.stop_string: str | None = None
        """The stop string that was found, after which no more tokens may be pushed."""

    @property
    def stopped(self) -> bool:
        """True if a stop string was found."""
        return self.stop_string is not None

    def bytes_of(self, token_id: int) -> bytes:
        """Return the bytes that ``token_id`` would add as the next token; alone they may be invalid
        UTF-8."""
        if token_id in self._kept:
            return self._token_bytes.special[token_id].encode()
        return self._token_bytes.after(self._context, token_id)

    def offset_of(self, added: bytes) -> int:
        """Return the number of characters before the next token, of which the bytes are ``added``:
        those completed so far, and the replacement of one that the token breaks off."""
        return self.num_characters + self._characters.num_broken_off_by(added)

    def push(self, token_id: int) -> str:
        """Return the text that can be emitted after ``token_id``."""
        self._num_unstopped -= 1
        if token_id in self._kept:
            certain = self._characters.flush() + self._token_bytes.special[token_id]
            return self._emit(certain, certain)
        if token_id in self._token_bytes.special:
            return self._emit("", (token_id,))
        certain = self._characters.push(self.bytes_of(token_id))
        self._context = self._token_bytes.context([*self._context, token_id])
        return self._emit(certain, certain)

    def flush(self) -> str:
        """Return the text held back, after the last token; it may contain a stop string too."""
        if self.stopped:
            return ""
        rest = self._characters.flush()
        text = self._emit(rest, rest)
        held, self._held = self._held, ""
        return text + held

    def _emit(self, new: str, symbols: Sequence[Symbol]) -> str:
        """Return the text that can be emitted now that ``new`` is certain; ``symbols`` is ``new``
        as stop strings see it."""
        self.num_characters += len(new)
        if self._stop_strings is None:
            return new
        text, end = self._held + new, len(self._held)
        for symbol in symbols:
            end += isinstance(symbol, str)
            match = self._stop_strings.push(symbol)
            if match is not None and self._num_unstopped < 0:
                self.stop_string = match.stop_string
                self._held = ""
                return text[: end if self._include_stop else end - match.num_characters]
        end = len(text) - self._stop_strings.num_undecided
        self._held = text[end:]
        return text[:end]


class _Characters:
    """Decodes bytes to characters as they come.

    ``begun`` are the first bytes of a character that the prompt ends within. That character belongs
    to the prompt, and so do the bytes that complete it. ``errors`` names the handler of invalid
    UTF-8.
    """

    def __init__(self, begun: bytes, errors: str) -> None:
        self._begun = begun
        self._errors = errors
        self._incomplete = b""

    def push(self, more: bytes) -> str:
        """Return the characters that are complete or broken off, which later bytes can't change."""
        return self._decoded(self._incomplete + self._after_the_prompts(more), final=False)

    def num_broken_off_by(self, more: bytes) -> int:
        """Return how many characters replace the incomplete one if ``more`` does not go on with
        it."""
        try:
            _decoded(self._incomplete + more[:1], "strict")
        except UnicodeDecodeError:
            return len(_decoded(self._incomplete, self._errors, final=True)[0])
        return 0

    def flush(self) -> str:
        """Return the replacement for an incomplete character, which no bytes will complete."""
        self._begun = b""
        return self._decoded(self._incomplete, final=True)

    def _decoded(self, written: bytes, *, final: bool) -> str:
        text, self._incomplete = _decoded(written, self._errors, final=final)
        return text

    def _after_the_prompts(self, more: bytes) -> bytes:
        """Return ``more`` without the bytes that complete the prompt's last character."""
        while self._begun and more:
            begun = self._begun + more[:1]
            try:
                complete, _ = _decoded(begun, "strict")
            except UnicodeDecodeError:
                self._begun = b""
                break
            self._begun, more = b"" if complete else begun, more[1:]
        return more


def _broken_off(token_bytes: TokenBytes, prompt: Sequence[int]) -> bytes:
    """Return the bytes of the character that ``prompt`` ends within."""
    end = b""
    for token in reversed(prompt):
        end = token_bytes(token) + end
        if len(end) >= LONGEST_CHARACTER:
            break
    _, incomplete = _decoded(end, "replace")
    return incomplete


def _decoded(written: bytes, errors: str, *, final: bool = False) -> tuple[str, bytes]:
    """Return the characters of ``written``, and the final bytes that later ones may complete."""
    text, num_bytes = codecs.utf_8_decode(written, errors, final)
    incomplete = written[num_bytes:]
    if b"\xed\xa0" <= incomplete < b"\xee":
        # Python waits for the last byte of a surrogate, which is never a valid character.
        return text + codecs.utf_8_decode(incomplete, errors, True)[0], b""
    return text, incomplete
