"""The bytes that each token stands for: those of all tokens make up the text's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.orchestrator.byte_tokenizers import byte_fallback
from tests.orchestrator.model import TOKENIZER as BYTE_LEVEL
from tokenizers import AddedToken, Tokenizer, decoders, models

from specmesh.orchestrator.text.token_bytes import TokenBytes

WORDS = ["▁", "a", "é", "▁a", "▁größer", "<0x"]
FALLBACK = byte_fallback(WORDS)


def test_byte_level_tokens_have_the_bytes_that_their_letters_spell():
    token_bytes = TokenBytes(BYTE_LEVEL)
    text = " größer 東京 🙂\n\x00"
    encoded = BYTE_LEVEL.encode(text).ids
    assert b"".join(map(token_bytes, encoded)) == text.encode()
    assert any(b"\x80" <= token_bytes(token) < b"\xc0" for token in encoded)  # part of a character


@given(st.lists(st.sampled_from([*WORDS, *(f"<0x{byte:02X}>" for byte in range(256))])))
def test_tokens_with_byte_fallback_have_their_byte_or_their_text(entries: list[str]):
    token_bytes = TokenBytes(FALLBACK)
    ids = [FALLBACK.token_to_id(entry) for entry in ["a", *entries]]
    said = b"".join(map(token_bytes, ids))
    expected = b"a" + b"".join(
        bytes.fromhex(entry[3:5]) if entry.endswith(">") else entry.replace("▁", " ").encode()
        for entry in entries
    )
    assert said == expected
    try:
        text = said.decode()
    except UnicodeDecodeError:
        return
    assert FALLBACK.decode(ids) == text


@pytest.mark.parametrize("tokenizer", [BYTE_LEVEL, FALLBACK], ids=["byte-level", "fallback"])
def test_added_tokens_have_their_own_text_and_special_ones_none(tokenizer: Tokenizer):
    tokenizer = Tokenizer.from_str(tokenizer.to_str())
    tokenizer.add_special_tokens(["<|user|>"])
    tokenizer.add_tokens([AddedToken("東 tool", normalized=False)])
    token_bytes = TokenBytes(tokenizer)
    assert token_bytes(tokenizer.token_to_id("<|user|>")) == b""
    assert token_bytes(tokenizer.token_to_id("東 tool")) == "東 tool".encode()


def test_a_padded_vocabulary_has_ids_that_stand_for_nothing():
    assert TokenBytes(BYTE_LEVEL)(BYTE_LEVEL.get_vocab_size() + 7) == b""


def test_words_have_the_space_that_stands_before_them():
    tokenizer = Tokenizer(models.WordPiece({"hello": 0, "##ing": 1, "[UNK]": 2}, unk_token="[UNK]"))
    tokenizer.decoder = decoders.WordPiece()
    token_bytes = TokenBytes(tokenizer)
    assert (token_bytes(0), token_bytes(1)) == (b" hello", b"ing")
