"""The bytes of text that the tokens of a vocabulary stand for.

A token need not hold whole characters, so its text alone may be meaningless. The text that it adds
may also depend on the tokens before it: many tokenizers drop a space at the very beginning.
"""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from itertools import islice

from tokenizers import Tokenizer

from specmesh.orchestrator.text.spellings import Spellings

INCOMPLETE = "\ufffd"
"""The replacement character, for bytes that form no character or do not form one yet."""

CONTEXT_TOKENS = 8
"""Most tokens that decide what the next one adds to the text."""

END_TOKENS = 16
"""Tokens at the end of a prompt that may spell what the answer begins with."""

_FIRST_CONTINUATION_BYTE = ("<0x80>", "\u0122")
"""The token for the byte 0x80, as SentencePiece and as GPT-2 spell it."""

_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
"""Bytes that GPT-2's vocabulary spells as the character of that number; it spells the others as the
characters from U+0100 on."""
_OTHERS = sorted(set(range(0x100)) - set(_PRINTABLE))
_BYTES = {
    **{chr(byte): byte for byte in _PRINTABLE},
    **{chr(0x100 + index): byte for index, byte in enumerate(_OTHERS)},
}

_FALLBACK = re.compile("<0x([0-9A-F]{2})>")


class TokenBytes:
    """Finds the bytes of tokens by their ids."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.special: dict[int, str] = {
            token_id: token.content
            for token_id, token in tokenizer.get_added_tokens_decoder().items()
            if token.special
        }
        """The spellings of the special tokens, which add no text."""
        self._special_ids = {content: token_id for token_id, content in self.special.items()}
        self.spellings = Spellings(self._special_ids)
        self._known: dict[int, bytes | None] = {}
        """The bytes of tokens that stand for the same ones in any context; None for others."""
        self._lengths: dict[int, int] = {}
        """The characters of tokens that are decoded alone."""
        fallback, byte_level = _FIRST_CONTINUATION_BYTE
        self.has_fallback = self._spells_a_byte(fallback)
        """True if there are tokens of one byte each for characters that the vocabulary lacks."""
        self._is_byte_level = self._spells_a_byte(byte_level)
        self.spells_any_bytes = self.has_fallback or self._is_byte_level
        """True if the tokens of a text hold all of its bytes. Others leave out spaces, and have one
        token for all that the vocabulary lacks."""

    def __call__(self, token_id: int) -> bytes:
        """Return the bytes of a token in the middle of a text; none if it is special or unknown to
        the tokenizer."""
        return self.after((token_id,), token_id)

    def after(self, context: Sequence[int], token_id: int) -> bytes:
        """Return the bytes that a token adds to the text of the previous tokens, whose ``context``
        has to be passed."""
        known = self._fixed(token_id)
        # At the beginning a space may be dropped, even one that is spelled as a byte.
        if known is None or (not context and known.isascii()):
            before = self._length(context)
            return self._text([*context, token_id])[before:].encode()
        return known

    def context(self, tokens: Sequence[int]) -> list[int]:
        """Return the end of ``tokens`` that decides what the next one adds to their text: the
        shortest end that has a text itself."""
        if tokens and tokens[-1] not in self.special and self._length(tokens[-1:]):
            return [tokens[-1]]  # as nearly always
        with_text = (token for token in reversed(tokens) if token not in self.special)
        context: list[int] = []
        for token in islice(with_text, CONTEXT_TOKENS):
            context.insert(0, token)
            if self._length(context):
                break
        return context

    def end_of(self, tokens: Sequence[int]) -> str:
        """Return the text of the last ``tokens``, special ones included."""
        end = list(tokens[-END_TOKENS:])
        return str(self._tokenizer.decode(end, skip_special_tokens=False))

    def spelled(self, text: str, kept: Set[int] = frozenset()) -> list[str | int]:
        """Return ``text`` as single characters, with the token's id in place of each special token
        that it spells and that is not ``kept``."""
        parts: list[str | int] = []
        told = 0
        for start, end in self.spellings.found(text):
            token_id = self._special_ids[text[start:end]]
            if token_id not in kept:
                parts += [*text[told:start], token_id]
                told = end
        return [*parts, *text[told:]]

    def _text(self, tokens: Sequence[int]) -> str:
        return str(self._tokenizer.decode(tokens))

    def _length(self, tokens: Sequence[int]) -> int:
        """Return the number of characters of ``tokens``, which are mostly one: the context of the
        next token."""
        if len(tokens) != 1:
            return len(self._text(tokens))
        (token_id,) = tokens
        if token_id not in self._lengths:
            self._lengths[token_id] = len(self._text(tokens))
        return self._lengths[token_id]

    def _spells_a_byte(self, entry: str) -> bool:
        decoder = self._tokenizer.decoder
        return decoder is not None and decoder.decode([entry]) == INCOMPLETE

    def _fixed(self, token_id: int) -> bytes | None:
        if token_id not in self._known:
            self._known[token_id] = self._found(token_id)
        return self._known[token_id]

    def _found(self, token_id: int) -> bytes | None:
        entry = self._tokenizer.id_to_token(token_id)
        if entry is None or token_id in self.special:
            return b""
        if self._is_byte_level and all(letter in _BYTES for letter in entry):
            return bytes(_BYTES[letter] for letter in entry)
        if self.has_fallback and (byte := _FALLBACK.fullmatch(entry)):
            return bytes.fromhex(byte[1])
        return None
