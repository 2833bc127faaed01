"""Tokens become text, the same however they come."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.orchestrator.model import TOKENIZER, VOCAB_SIZE, text_after

from specmesh.orchestrator.text.decoder import TextStream
from specmesh.orchestrator.text.token_bytes import TokenBytes

TOKEN_BYTES = TokenBytes(TOKENIZER)

TOKENS = st.lists(st.integers(1, VOCAB_SIZE - 1), max_size=30)
WRITTEN = st.text(alphabet="ab 🙂東ü\ufffd", max_size=12)
STOPS = st.lists(st.text(alphabet="ab ü東", min_size=1, max_size=3), max_size=3)


def encode(text: str) -> list[int]:
    return TOKENIZER.encode(text).ids


def pieces(tokens: list[int], stops: list[str] = (), prompt: list[int] = ()) -> list[str]:
    """What each token sets free, then what the end does."""
    stream = TextStream(TOKEN_BYTES, prompt, stops)
    said = []
    for token in tokens:
        said.append(stream.push(token))
        if stream.stopped:
            break
    return [*said, stream.flush()]


def test_character_split_over_tokens_comes_whole():
    tokens = encode("é")
    assert len(tokens) == 2
    assert pieces(tokens) == ["", "é", ""]


def test_character_that_never_completes_is_flushed_as_it_stands():
    assert pieces(encode("aé")[:-1]) == ["a", "", "\ufffd"]


@pytest.mark.parametrize("stop", ["b", "bc", "bcd", "cd"])
def test_stop_string_across_tokens_ends_the_text_before_it(stop):
    tokens = [*encode("a"), *encode("b"), *encode("c"), *encode("d"), *encode("e")]
    assert len(tokens) == 5
    assert "".join(pieces(tokens, [stop])) == "abcde"[: "abcde".index(stop)]


@pytest.mark.parametrize(("include_stop", "text"), [(False, "a"), (True, "abc")])
def test_the_stop_string_that_ends_the_text_is_known_and_may_be_included(include_stop, text):
    stream = TextStream(TOKEN_BYTES, (), ["c", "bc", "z"], include_stop=include_stop)
    said = [stream.push(token) for letter in "abc" for token in encode(letter)]
    assert stream.stop_string == "bc"
    assert "".join(said) + stream.flush() == text


@pytest.mark.parametrize(("min_tokens", "text"), [(0, "a"), (1, "a"), (2, "abca"), (5, "abcabc")])
def test_stop_string_that_one_of_the_first_tokens_completes_is_ignored(min_tokens, text):
    stream = TextStream(TOKEN_BYTES, (), ["b"], min_tokens=min_tokens)
    tokens = [token for letter in "abcabc" for token in encode(letter)]
    said = []
    for token in tokens:
        said.append(stream.push(token))
        if stream.stopped:
            break
    assert "".join(said) + stream.flush() == text


def test_text_that_may_become_a_stop_string_waits():
    assert pieces([*encode("a"), *encode("b"), *encode("z")], ["bc"]) == ["a", "", "bz", ""]


def test_held_back_text_is_flushed_at_the_end():
    assert pieces([*encode("a"), *encode("b")], ["bc"]) == ["a", "", "b"]


@pytest.mark.parametrize("stops", [["l", "e"], ["el", "l"]])
def test_first_stop_string_to_be_complete_wins(stops):
    (token,) = encode("hel")
    stream = TextStream(TOKEN_BYTES, (), stops)
    assert stream.push(token) == "h"
    assert stream.stopped
    assert stream.flush() == ""


def test_overlapping_starts_of_a_stop_string_are_both_remembered():
    tokens = [token for letter in "aab" for token in encode(letter)]
    assert pieces(tokens, ["ab"]) == ["", "a", "", ""]


@pytest.mark.parametrize("ending", ["\ufffd", "end \ufffd\ufffd", "東京"])
def test_text_prompt_is_not_said_again(ending):
    prompt = encode(ending)
    assert "".join(pieces(encode(" ab"), prompt=prompt)) == " ab"


def test_prompt_that_ends_within_a_character_is_not_said_again():
    first, second = encode("é")
    assert "".join(pieces([second, *encode("ab")], prompt=[*encode("hello"), first])) == "ab"


def test_special_tokens_say_nothing():
    assert "".join(pieces([*encode("a"), 0, *encode("b")])) == "ab"


@given(TOKENS, TOKENS)
def test_joined_pieces_are_the_text_of_the_tokens(prompt, tokens):
    assert "".join(pieces(tokens, prompt=prompt)) == text_after(prompt[-8:], tokens)


@given(WRITTEN, WRITTEN)
def test_written_text_comes_back(prompt, text):
    tokens = encode(text)
    assert "".join(pieces(tokens, prompt=encode(prompt))) == text


@given(TOKENS, STOPS, st.integers(0, 30))
def test_what_is_said_after_n_tokens_depends_on_those_alone(tokens, stops, count):
    """A resumed stream replays the tokens and goes on where the first left off."""
    whole, part = pieces(tokens, stops), pieces(tokens[:count], stops)
    assert whole[: len(part) - 1][:count] == part[:-1]


@given(TOKENS, STOPS)
def test_nothing_said_is_ever_part_of_a_stop_string(tokens, stops):
    assert not any(stop in "".join(pieces(tokens, stops)[:-1]) for stop in stops)
