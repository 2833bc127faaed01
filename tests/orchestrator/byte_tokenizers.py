"""Tokenizers whose tokens are bytes, or pieces of characters, of one's own choice."""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import Tokenizer, decoders, models

SINGLE_BYTES = [bytes([value]) for value in range(256)]


def byte_level(pieces: Sequence[bytes]) -> Tokenizer:
    """Token n is ``pieces[n]``, decoded as in GPT-2: what makes no character is U+FFFD."""
    letters = _byte_letters()
    vocab = {"".join(letters[byte] for byte in piece): n for n, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def byte_fallback(words: Sequence[str]) -> Tokenizer:
    """Tokens 0 to 255 are bytes, the others ``words``, decoded as in Llama 2.

    A run of bytes that is not UTF-8 as a whole becomes a U+FFFD for each of them, and a space
    at the very beginning is dropped.
    """
    tokens = [*(f"<0x{value:02X}>" for value in range(256)), *words]
    vocab = {token: n for n, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[], byte_fallback=True))
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return tokenizer


def _byte_letters() -> list[str]:
    """GPT-2's letter for each byte: itself if it can be seen, else one beyond Latin-1."""
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in visible else next(others)) for byte in range(256)]
