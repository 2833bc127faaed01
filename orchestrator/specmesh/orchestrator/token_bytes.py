"""The bytes of text that each token of a vocabulary stands for.

A token need not hold whole characters, so that its text alone may say nothing.
"""

from __future__ import annotations

import re

from tokenizers import Tokenizer

from specmesh.orchestrator.text import BYTE_TOKENS, INCOMPLETE

_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
"""Bytes that GPT-2's vocabulary spells by the letter of that number; it spells the others by the
letters from U+0100 on."""
_OTHERS = sorted(set(range(0x100)) - set(_PRINTABLE))
_BYTES = {
    **{chr(byte): byte for byte in _PRINTABLE},
    **{chr(0x100 + index): byte for index, byte in enumerate(_OTHERS)},
}

_FALLBACK = re.compile("<0x([0-9A-F]{2})>")


class TokenBytes:
    """The bytes of tokens by their ids, each found once."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._known: dict[int, bytes] = {}
        fallback, byte_level = (low for low, _ in BYTE_TOKENS)
        self._has_fallback = self._spells_a_byte(fallback)
        self._is_byte_level = self._spells_a_byte(byte_level)

    def __call__(self, token_id: int) -> bytes:
        """The bytes of a token; none if it is special, or no token of the tokenizer."""
        if token_id not in self._known:
            self._known[token_id] = self._bytes(token_id)
        return self._known[token_id]

    def _spells_a_byte(self, entry: str) -> bool:
        decoder = self._tokenizer.decoder
        return decoder is not None and decoder.decode([entry]) == INCOMPLETE

    def _bytes(self, token_id: int) -> bytes:
        entry = self._tokenizer.id_to_token(token_id)
        alone: str = self._tokenizer.decode([token_id])
        shown = self._tokenizer.decode([token_id], skip_special_tokens=False)
        if entry is None or (shown and not alone):
            return b""
        if self._is_byte_level and all(letter in _BYTES for letter in entry):
            return bytes(_BYTES[letter] for letter in entry)
        if self._has_fallback and (byte := _FALLBACK.fullmatch(entry)):
            return bytes.fromhex(byte[1])
        # What it adds to a text: at the beginning of one its space would be left out.
        twice: str = self._tokenizer.decode([token_id, token_id])
        return twice[len(alone) :].encode()
