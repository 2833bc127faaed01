"""Small vocabularies of whole bytes and pieces, and what texts begin with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from specmesh import models as shipped
from specmesh.decoding.grammar import Grammar
from specmesh.inference.grammar.vocabulary import Vocabulary
from specmesh.inference.model import ModelDescription

END = "<|end|>"


def tokenizer_of(pieces: Sequence[str]) -> Tokenizer:
    """A byte-level tokenizer with ``pieces``, then all single bytes, then the end of a text."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    entries = [*pieces, *(letter for letter in alphabet if letter not in pieces)]
    tokenizer = Tokenizer(models.BPE({entry: at for at, entry in enumerate(entries)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(END, special=True)])
    return tokenizer


def description_of(tokenizer_json: str, vocab_size: int, *ends: int) -> ModelDescription:
    """A model that has nothing but this vocabulary."""
    return ModelDescription("toy", vocab_size, 64, ends, tokenizer_json, 1, "toy", "00")


class Small:
    """A vocabulary whose answers can be enumerated."""

    def __init__(self, *pieces: str) -> None:
        tokenizer = tokenizer_of(pieces)
        self.size = tokenizer.get_vocab_size()
        self.end = self.size - 1
        self.texts = [tokenizer.decode([token]).encode() for token in range(self.end)]
        for token in range(self.end):  # single bytes need not be text
            entry = tokenizer.id_to_token(token)
            if len(entry) == 1:
                self.texts[token] = bytes([_byte_of(entry)])
        self.vocabulary = Vocabulary.of(description_of(tokenizer.to_str(), self.size, self.end))

    def text(self, tokens: Iterable[int]) -> bytes:
        return b"".join(self.texts[token] for token in tokens)

    def expected(self, texts: Iterable[bytes], tokens: Sequence[int]) -> set[int]:
        """Return the tokens that may follow ``tokens`` in one of ``texts``, by trying them all."""
        texts = set(texts)
        said = self.text(tokens)
        allowed = {
            token
            for token, more in enumerate(self.texts)
            if any(text.startswith(said + more) for text in texts)
        }
        return allowed | ({self.end} if said in texts else set())


@cache
def _bytes() -> dict[str, int]:
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {
        chr(0x100 + at): byte for at, byte in enumerate(others)
    }


def _byte_of(letter: str) -> int:
    return _bytes()[letter]


def tokens_in(bits: np.ndarray) -> set[int]:
    return set(np.flatnonzero(np.unpackbits(bits, bitorder="little")).tolist())


@cache
def shipped_vocabulary() -> tuple[Vocabulary, Tokenizer]:
    """Return the vocabulary and the tokenizer of the shipped pair."""
    file = shipped.path(shipped.TARGET) / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(file))
    size = tokenizer.get_vocab_size()
    return Vocabulary.of(description_of(tokenizer.to_str(), size, 0)), tokenizer


def fits(grammar: Grammar, text: str) -> bool:
    """Return whether the engine takes ``text``, in the shipped tokens, as a whole answer."""
    vocabulary, tokenizer = shipped_vocabulary()
    matcher = vocabulary.compile(grammar).matcher()
    tokens = tokenizer.encode(text, add_special_tokens=False).ids
    return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()
