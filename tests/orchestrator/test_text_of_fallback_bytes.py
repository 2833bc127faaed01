"""Tokenizers like SentencePiece write a character they lack as tokens of one byte each, and
decode such bytes in a row as a whole: one that is invalid must not spoil the others."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.orchestrator.byte_tokenizers import byte_fallback
from tests.orchestrator.streamed_text import STOPS, cut, pieces

from specmesh.orchestrator.text.decoder import TextStream
from specmesh.orchestrator.text.token_bytes import TokenBytes

WORDS = ["▁", "a", "b", ":", "▁a", "▁b", "\ufffd"]
BYTE_FALLBACK = byte_fallback(WORDS)


def of(*words: str) -> list[int]:
    """Ids of tokens, by their names."""
    return [256 + WORDS.index(word) for word in words]


def in_bytes(text: str) -> list[int]:
    """``text`` as byte tokens of ``BYTE_FALLBACK``."""
    return list(text.encode())


def test_fallback_bytes_come_as_whole_characters_in_a_row():
    tokens = [*in_bytes("é€"), *of("▁a")]
    expected = ["", "é", "", "", "€", " a", ""]
    assert pieces(BYTE_FALLBACK, tokens, prompt=of("a")) == (expected, False)


def test_fallback_bytes_that_never_complete_are_said_as_the_tokenizer_says_them():
    tokens = [*in_bytes("€")[:2], *of("▁a")]
    assert pieces(BYTE_FALLBACK, tokens) == (["", "", "\ufffd\ufffd a", ""], False)
    assert pieces(BYTE_FALLBACK, tokens[:2]) == (["", "", "\ufffd\ufffd"], False)


def test_a_token_behind_fallback_bytes_that_never_complete_begins_behind_all_that_replaces_them():
    stream = TextStream(TokenBytes(BYTE_FALLBACK), (), ())
    text = "".join(map(stream.push, in_bytes("€")[:2]))
    assert (text, stream.offset_of(b" a"), stream.offset_of(b"\xac")) == ("", 2, 0)


def test_fallback_bytes_do_not_take_back_the_character_before_them():
    tokens = [*in_bytes("é"), *in_bytes("€")[:1], *of("a", "b")]
    assert pieces(BYTE_FALLBACK, tokens) == (["", "é", "", "\ufffda", "b", ""], False)


def test_stop_string_of_fallback_bytes_is_found_with_its_last_byte():
    tokens = [*of("a"), *in_bytes("€€")]
    assert pieces(BYTE_FALLBACK, tokens, ["€€"]) == (["a", "", "", "", "", "", "", ""], True)


def test_stop_string_of_replacement_signs_is_found_among_fallback_bytes():
    tokens = [*of("a"), 0xFF, *of("b")]
    assert pieces(BYTE_FALLBACK, tokens, ["\ufffd"]) == (["a", "", ""], True)
    broken = [*of("a"), *in_bytes("€")[:2]]
    assert pieces(BYTE_FALLBACK, broken, ["\ufffd\ufffd"]) == (["a", "", "", ""], True)


@pytest.mark.parametrize("num_broken", [0, 1, 2, 3])
def test_prompt_of_fallback_bytes_is_not_said_again(num_broken):
    """A character that the prompt breaks off in is the prompt's."""
    written = in_bytes("🙂🙂🙂🙂")
    cut_at = len(written) - num_broken
    tokens = [*written[cut_at:], *of("▁a"), *in_bytes("é"), *of("b")]
    said, _ = pieces(BYTE_FALLBACK, tokens, prompt=of("a") + written[:cut_at])
    assert "".join(said) == " aéb"


def test_answer_after_a_long_prompt_of_fallback_bytes_is_whole():
    """The context may begin within a character, which must not spoil those that follow."""
    for num_tokens in range(1, 13):
        prompt = in_bytes("€éé🙂")[-num_tokens:]
        said, _ = pieces(BYTE_FALLBACK, in_bytes("é€"), prompt=of("b") + prompt)
        assert "".join(said) == "é€", num_tokens


@given(st.text(alphabet="ab: é€🙂", max_size=10), st.text(alphabet="ab: é€🙂", max_size=10), STOPS)
def test_fallback_bytes_of_whole_characters_are_the_text(prompt, text, stops):
    def tokens(written: str) -> list[int]:
        return [
            token
            for letter in written
            for token in (of(letter) if letter in WORDS else in_bytes(letter))
        ]

    said, stopped = pieces(BYTE_FALLBACK, tokens(text), stops, tokens("a" + prompt))
    ended = cut(text, stops)
    assert "".join(said) == (text if ended is None else ended)
    assert stopped == (ended is not None)


def fallback_text(tokens: Sequence[int]) -> str:
    """Words and whole characters as they are, and a U+FFFD for each byte that is part of none, as
    SentencePiece has it."""
    text, rest = "", [BYTE_FALLBACK.id_to_token(token) for token in tokens]
    while rest:
        run = list(itertools.takewhile(lambda word: word.startswith("<0x"), rest))
        written = bytes(int(word[3:5], 16) for word in run)
        if not run:
            text += rest.pop(0).replace("▁", " ")
        elif character := next(filter(None, (_whole(written[:n]) for n in range(1, 5))), None):
            text += character
            del rest[: len(character.encode())]
        else:
            text += "\ufffd"
            del rest[0]
    return text


def _whole(written: bytes) -> str | None:
    try:
        return written.decode()
    except UnicodeDecodeError:
        return None


@given(
    st.lists(st.sampled_from([*b"\x80\x82\x99\x9f\xa9\xac\xc3\xe2\xf0\xff", *range(256, 262)])),
    STOPS,
)
def test_fallback_text_is_said_up_to_the_first_stop_string(tokens, stops):
    prompt = of("a")
    said, stopped = pieces(BYTE_FALLBACK, tokens, stops, prompt)
    text = fallback_text(tokens)
    ended = cut(text, stops)
    assert "".join(said) == (text if ended is None else ended)
    assert stopped == (ended is not None)
    assert pieces(BYTE_FALLBACK, tokens[: len(said) - 2], stops, prompt)[0][:-1] == said[:-2]
