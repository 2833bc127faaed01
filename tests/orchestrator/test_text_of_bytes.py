"""Text is set free, and a stop string found, with the token that makes it certain: what no
later token can change."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.orchestrator.byte_tokenizers import SINGLE_BYTES, byte_level
from tests.orchestrator.streamed_text import BROKEN_OFF, STOPS, cut, pieces, undecided
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from specmesh.orchestrator.text.decoder import TextStream
from specmesh.orchestrator.text.token_bytes import TokenBytes

PIECES = [
    *SINGLE_BYTES,
    *(b" \xe2", b": ", b"\x82\xac", b"\xe2\x82", b"\xac: \xf0", b"\xf0\x9f", b"\x99\x82"),
    *("€".encode(), "é".encode(), "\ufffd".encode(), b"\xe2\xe2", b"ab", b"abc"),
]
BYTE_LEVEL = byte_level(PIECES)

# Bytes that begin, continue, break off and complete characters, and the like in pieces.
PIECE_IDS = st.lists(
    st.sampled_from(
        [
            *b"a: \x80\x82\x99\x9f\xa0\xac\xbf\xc3\xa9\xe0\xe2\xed\xef\xbd\xf0\xf4\xff",
            *range(256, len(PIECES)),
        ]
    ),
    max_size=16,
)


def of(*tokens: bytes) -> list[int]:
    """Ids of tokens, by their pieces."""
    return [PIECES.index(token) for token in tokens]


def test_stop_string_before_half_a_character_is_found_with_its_last_token():
    tokens = of(b"a", b":", b" \xe2", b"\x82\xac")
    assert pieces(BYTE_LEVEL, tokens, [": "]) == (["a", "", "", ""], True)


def test_stop_string_before_half_a_character_is_found_at_the_end():
    tokens = of(b"a", b":", b" \xe2")
    assert pieces(BYTE_LEVEL, tokens, [": "]) == (["a", "", "", ""], True)


def test_text_before_half_a_character_does_not_wait_for_the_rest():
    tokens = of(b"a", b" \xe2", b"\x82\xac")
    assert pieces(BYTE_LEVEL, tokens) == (["a", " ", "€", ""], False)


def test_character_that_another_one_breaks_off_is_set_free():
    tokens = of(b"\xe2\x82", b"\xf0\x9f", b"\xe2", b"\x82\xac")
    assert pieces(BYTE_LEVEL, tokens) == (["", "\ufffd", "\ufffd", "€", ""], False)


def test_byte_that_begins_no_character_is_set_free_at_once():
    tokens = of(b"\xff", b"\x80", b"a")
    assert pieces(BYTE_LEVEL, tokens) == (["\ufffd", "\ufffd", "a", ""], False)


def test_replacement_sign_that_the_model_wrote_is_set_free_at_once():
    tokens = of(b"\xef", b"\xbf", b"\xbd", b"a")
    assert pieces(BYTE_LEVEL, tokens) == (["", "", "\ufffd", "a", ""], False)
    assert pieces(BYTE_LEVEL, tokens, ["\ufffd"]) == (["", "", "", ""], True)


def test_stop_string_that_only_the_end_completes_cuts_the_text():
    tokens = of(b"a", b":", b"\xe2\x82")
    assert pieces(BYTE_LEVEL, tokens, [":\ufffd"]) == (["a", "", "", ""], True)
    assert pieces(BYTE_LEVEL, tokens, ["\ufffd"]) == (["a", ":", "", ""], True)


def test_nothing_follows_a_stop_string():
    stream = TextStream(TokenBytes(BYTE_LEVEL), (), [":"])
    (token,) = of(b"\xac: \xf0")
    assert stream.push(token) == "\ufffd"
    assert stream.stopped
    assert stream.flush() == ""


@pytest.mark.parametrize("stops", [["abc", "b"], ["b", "abc"]])
@pytest.mark.parametrize("tokens", [[b"abc"], [b"ab"], [b"a", b"b", b"c"]])
def test_stop_string_that_completes_first_wins_however_the_text_is_tokenized(stops, tokens):
    said, stopped = pieces(BYTE_LEVEL, of(*tokens), stops)
    assert ("".join(said), stopped) == ("a", True)


def test_of_stop_strings_that_complete_together_the_longest_is_cut_off():
    said, _ = pieces(BYTE_LEVEL, of(b"abc"), ["c", "bc"])
    assert said == ["a", ""]


def test_tokenizer_without_all_bytes_still_says_characters_whole():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(["é a"], trainers.BpeTrainer(vocab_size=4, show_progress=False))
    tokens = tokenizer.encode("éa").ids
    assert len(tokens) == 3
    assert pieces(tokenizer, tokens) == (["", "é", "a", ""], False)


def certain(tokens: Sequence[int]) -> str:
    """The text of ``tokens`` that cannot change any more, by Python's own UTF-8 decoder."""
    written = b"".join(PIECES[token] for token in tokens)
    ends = (written[-length:] for length in (1, 2, 3))
    broken_off = next((end for end in ends if end in BROKEN_OFF), b"")
    return written.removesuffix(broken_off).decode(errors="replace")


@given(PIECE_IDS, STOPS)
def test_text_is_said_as_soon_as_it_is_certain_up_to_the_first_stop_string(tokens, stops):
    stream = TextStream(TokenBytes(BYTE_LEVEL), (), stops)
    said = ""
    for count, token in enumerate(tokens, start=1):
        said += stream.push(token)
        text = certain(tokens[:count])
        ended = cut(text, stops)
        assert stream.stopped == (ended is not None)
        if ended is not None:
            assert said + stream.flush() == ended
            return
        assert said == text[: len(text) - undecided(text, stops)]
    said += stream.flush()
    whole = BYTE_LEVEL.decode(tokens)
    ended = cut(whole, stops)
    assert said == (whole if ended is None else ended)
    assert stream.stopped == (ended is not None)


@given(PIECE_IDS)
def test_a_token_begins_at_the_character_that_its_first_byte_is_of(tokens):
    stream, written = TextStream(TokenBytes(BYTE_LEVEL), (), ()), b""
    for token in tokens:
        begun = written + PIECES[token][:1]
        assert stream.offset_of(PIECES[token]) == len(begun.decode(errors="replace")) - 1
        written += PIECES[token]
        stream.push(token)


@given(PIECE_IDS, PIECE_IDS, STOPS, st.integers(0, 16))
def test_replay_says_the_very_same(prompt, tokens, stops, count):
    whole, stopped = pieces(BYTE_LEVEL, tokens, stops, prompt)
    part, _ = pieces(BYTE_LEVEL, tokens[:count], stops, prompt)
    assert part[:-1] == whole[:-1][:count]
    assert pieces(BYTE_LEVEL, tokens, stops, prompt) == (whole, stopped)


@given(PIECE_IDS, PIECE_IDS)
def test_text_follows_that_of_the_prompt(prompt, tokens):
    prompt = prompt[-8:]
    said, _ = pieces(BYTE_LEVEL, tokens, prompt=prompt)
    assert "".join(said) == BYTE_LEVEL.decode([*prompt, *tokens])[len(BYTE_LEVEL.decode(prompt)) :]


@given(st.text(alphabet="ab: é€🙂\ufffd", max_size=12), STOPS, st.data())
def test_tokens_into_which_a_text_is_cut_do_not_matter(text, stops, data):
    written, by_byte = text.encode(), list(text.encode())
    cuts = []
    while written:
        fitting = [n for n, piece in enumerate(PIECES) if written.startswith(piece)]
        cuts.append(data.draw(st.sampled_from(fitting)))
        written = written[len(PIECES[cuts[-1]]) :]
    one, other = pieces(BYTE_LEVEL, cuts, stops), pieces(BYTE_LEVEL, by_byte, stops)
    assert ("".join(one[0]), one[1]) == ("".join(other[0]), other[1])


def test_tokens_that_say_nothing_cost_the_same_however_many_came():
    tokenizer = byte_level(PIECES)
    tokenizer.add_special_tokens(["<end>"])
    silent = tokenizer.token_to_id("<end>")
    decoded = []

    class Counting:
        """The tokenizer, counting what it is asked to decode."""

        def decode(self, ids, **options):
            decoded.append(len(ids))
            return tokenizer.decode(ids, **options)

        def __getattr__(self, name):
            return getattr(tokenizer, name)

    said, _ = pieces(Counting(), [*of(b"a"), *[silent] * 100, *of(b"b")])
    assert "".join(said) == "ab"
    assert max(decoded) < 10
