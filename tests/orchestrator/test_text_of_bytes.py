"""Text is set free, and a stop string found, with the token that makes it certain: what no
later token can change."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.orchestrator.byte_tokenizers import SINGLE_BYTES, byte_fallback, byte_level
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from specmesh.orchestrator.text import TextStream

PIECES = [
    *SINGLE_BYTES,
    *(b" \xe2", b": ", b"\x82\xac", b"\xe2\x82", b"\xac: \xf0", b"\xf0\x9f", b"\x99\x82"),
    *("€".encode(), "é".encode(), "\ufffd".encode(), b"\xe2\xe2", b"ab", b"abc"),
]
BYTE_LEVEL = byte_level(PIECES)
WORDS = ["▁", "a", "b", ":", "▁a", "▁b", "\ufffd"]
BYTE_FALLBACK = byte_fallback(WORDS)

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
STOPS = st.lists(st.text(alphabet="ab: é€🙂\ufffd", min_size=1, max_size=3), max_size=4)


def of(tokenizer: Tokenizer, *tokens: bytes | str) -> list[int]:
    """Ids of tokens, by their pieces of bytes or by their names."""
    if tokenizer is BYTE_LEVEL:
        return [PIECES.index(token) for token in tokens]
    ids = [tokenizer.token_to_id(token) for token in tokens]
    assert None not in ids
    return ids


def in_bytes(text: str) -> list[int]:
    """``text`` as byte tokens of ``BYTE_FALLBACK``."""
    return list(text.encode())


def pieces(
    tokenizer: Tokenizer,
    tokens: Sequence[int],
    stops: Sequence[str] = (),
    prompt: Sequence[int] = (),
) -> tuple[list[str], bool]:
    """What each token sets free, then what the end does; and whether a stop string was met."""
    stream = TextStream(tokenizer, prompt, stops)
    said = []
    for token in tokens:
        said.append(stream.push(token))
        if stream.stopped:
            break
    return [*said, stream.flush()], stream.stopped


def test_stop_string_before_half_a_character_is_found_with_its_last_token():
    tokens = of(BYTE_LEVEL, b"a", b":", b" \xe2", b"\x82\xac")
    assert pieces(BYTE_LEVEL, tokens, [": "]) == (["a", "", "", ""], True)


def test_stop_string_before_half_a_character_is_found_at_the_end():
    tokens = of(BYTE_LEVEL, b"a", b":", b" \xe2")
    assert pieces(BYTE_LEVEL, tokens, [": "]) == (["a", "", "", ""], True)


def test_text_before_half_a_character_does_not_wait_for_the_rest():
    tokens = of(BYTE_LEVEL, b"a", b" \xe2", b"\x82\xac")
    assert pieces(BYTE_LEVEL, tokens) == (["a", " ", "€", ""], False)


def test_character_that_another_one_breaks_off_is_set_free():
    tokens = of(BYTE_LEVEL, b"\xe2\x82", b"\xf0\x9f", b"\xe2", b"\x82\xac")
    assert pieces(BYTE_LEVEL, tokens) == (["", "\ufffd", "\ufffd", "€", ""], False)


def test_byte_that_begins_no_character_is_set_free_at_once():
    tokens = of(BYTE_LEVEL, b"\xff", b"\x80", b"a")
    assert pieces(BYTE_LEVEL, tokens) == (["\ufffd", "\ufffd", "a", ""], False)


def test_replacement_sign_that_the_model_wrote_is_set_free_at_once():
    tokens = of(BYTE_LEVEL, b"\xef", b"\xbf", b"\xbd", b"a")
    assert pieces(BYTE_LEVEL, tokens) == (["", "", "\ufffd", "a", ""], False)
    assert pieces(BYTE_LEVEL, tokens, ["\ufffd"]) == (["", "", "", ""], True)


def test_stop_string_that_only_the_end_completes_cuts_the_text():
    tokens = of(BYTE_LEVEL, b"a", b":", b"\xe2\x82")
    assert pieces(BYTE_LEVEL, tokens, [":\ufffd"]) == (["a", "", "", ""], True)
    assert pieces(BYTE_LEVEL, tokens, ["\ufffd"]) == (["a", ":", "", ""], True)


def test_nothing_follows_a_stop_string():
    stream = TextStream(BYTE_LEVEL, (), [":"])
    (token,) = of(BYTE_LEVEL, b"\xac: \xf0")
    assert stream.push(token) == "\ufffd"
    assert stream.stopped
    assert stream.flush() == ""


@pytest.mark.parametrize("stops", [["abc", "b"], ["b", "abc"]])
@pytest.mark.parametrize("tokens", [[b"abc"], [b"ab"], [b"a", b"b", b"c"]])
def test_stop_string_that_completes_first_wins_however_the_text_is_tokenized(stops, tokens):
    said, stopped = pieces(BYTE_LEVEL, of(BYTE_LEVEL, *tokens), stops)
    assert ("".join(said), stopped) == ("a", True)


def test_of_stop_strings_that_complete_together_the_longest_is_cut_off():
    said, _ = pieces(BYTE_LEVEL, of(BYTE_LEVEL, b"abc"), ["c", "bc"])
    assert said == ["a", ""]


def test_tokenizer_without_all_bytes_still_says_characters_whole():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(["é a"], trainers.BpeTrainer(vocab_size=4, show_progress=False))
    tokens = tokenizer.encode("éa").ids
    assert len(tokens) == 3
    assert pieces(tokenizer, tokens) == (["", "é", "a", ""], False)


CHARACTERS = (chr(code).encode() for code in range(0x80, 0x110000, 64) if code >> 11 != 0x1B)
BROKEN_OFF = {character[:end] for character in CHARACTERS for end in range(1, len(character))}
"""What a character can be broken off at."""


def certain(tokens: Sequence[int]) -> str:
    """The text of ``tokens`` that cannot change any more, by Python's own UTF-8 decoder."""
    written = b"".join(PIECES[token] for token in tokens)
    ends = (written[-length:] for length in (1, 2, 3))
    broken_off = next((end for end in ends if end in BROKEN_OFF), b"")
    return written.removesuffix(broken_off).decode(errors="replace")


def cut(text: str, stops: Sequence[str]) -> str | None:
    """``text`` before the stop string that completes first, the longest such one; None if
    there is none."""
    for end in range(len(text) + 1):
        if found := [stop for stop in stops if text[:end].endswith(stop)]:
            return text[: end - max(map(len, found))]
    return None


def undecided(text: str, stops: Sequence[str]) -> int:
    starts = {stop[:length] for stop in stops for length in range(1, len(stop))}
    return max((len(start) for start in starts if text.endswith(start)), default=0)


@given(PIECE_IDS, STOPS)
def test_text_is_said_as_soon_as_it_is_certain_up_to_the_first_stop_string(tokens, stops):
    stream = TextStream(BYTE_LEVEL, (), stops)
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


def test_fallback_bytes_come_as_whole_characters_in_a_row():
    tokens = [*in_bytes("é€"), *of(BYTE_FALLBACK, "▁a")]
    expected = ["", "é", "", "", "€", " a", ""]
    assert pieces(BYTE_FALLBACK, tokens, prompt=of(BYTE_FALLBACK, "a")) == (expected, False)


def test_fallback_bytes_that_never_complete_are_said_as_the_tokenizer_says_them():
    tokens = [*in_bytes("€")[:2], *of(BYTE_FALLBACK, "▁a")]
    assert pieces(BYTE_FALLBACK, tokens) == (["", "", "\ufffd\ufffd a", ""], False)
    assert pieces(BYTE_FALLBACK, tokens[:2]) == (["", "", "\ufffd\ufffd"], False)


def test_fallback_bytes_do_not_take_back_the_character_before_them():
    tokens = [*in_bytes("é"), *in_bytes("€")[:1], *of(BYTE_FALLBACK, "a", "b")]
    assert pieces(BYTE_FALLBACK, tokens) == (["", "é", "", "\ufffda", "b", ""], False)


def test_stop_string_of_fallback_bytes_is_found_with_its_last_byte():
    tokens = [*of(BYTE_FALLBACK, "a"), *in_bytes("€€")]
    assert pieces(BYTE_FALLBACK, tokens, ["€€"]) == (["a", "", "", "", "", "", "", ""], True)


def test_stop_string_of_replacement_signs_is_found_among_fallback_bytes():
    tokens = [*of(BYTE_FALLBACK, "a"), 0xFF, *of(BYTE_FALLBACK, "b")]
    assert pieces(BYTE_FALLBACK, tokens, ["\ufffd"]) == (["a", "", ""], True)
    broken = [*of(BYTE_FALLBACK, "a"), *in_bytes("€")[:2]]
    assert pieces(BYTE_FALLBACK, broken, ["\ufffd\ufffd"]) == (["a", "", "", ""], True)


@pytest.mark.parametrize("num_broken", [0, 1, 2, 3])
def test_prompt_of_fallback_bytes_is_not_said_again(num_broken):
    """A character that the prompt breaks off in is the prompt's."""
    written = in_bytes("🙂🙂🙂🙂")
    cut_at = len(written) - num_broken
    tokens = [*written[cut_at:], *of(BYTE_FALLBACK, "▁a"), *in_bytes("é"), *of(BYTE_FALLBACK, "b")]
    said, _ = pieces(BYTE_FALLBACK, tokens, prompt=of(BYTE_FALLBACK, "a") + written[:cut_at])
    assert "".join(said) == " aéb"


def test_answer_after_a_long_prompt_of_fallback_bytes_is_whole():
    """The context may begin within a character, which must not spoil those that follow."""
    for num_tokens in range(1, 13):
        prompt = in_bytes("€éé🙂")[-num_tokens:]
        said, _ = pieces(BYTE_FALLBACK, in_bytes("é€"), prompt=of(BYTE_FALLBACK, "b") + prompt)
        assert "".join(said).endswith("€"), num_tokens


@given(st.text(alphabet="ab: é€🙂", max_size=10), st.text(alphabet="ab: é€🙂", max_size=10), STOPS)
def test_fallback_bytes_of_whole_characters_are_the_text(prompt, text, stops):
    known = {word: id_ for word in WORDS if (id_ := BYTE_FALLBACK.token_to_id(word)) is not None}

    def tokens(written: str) -> list[int]:
        return [
            id_
            for letter in written
            for id_ in ([known[letter]] if letter in known else in_bytes(letter))
        ]

    said, stopped = pieces(BYTE_FALLBACK, tokens(text), stops, tokens("a" + prompt))
    ended = cut(text, stops)
    assert "".join(said) == (text if ended is None else ended)
    assert stopped == (ended is not None)


def fallback_text(tokens: Sequence[int]) -> str:
    """Words and whole characters as they are, and a U+FFFD for each byte of what begins a
    character and does not go on as one."""
    text, begun = "", b""
    for token in tokens:
        word = BYTE_FALLBACK.id_to_token(token)
        if not word.startswith("<0x"):
            text, begun = text + "\ufffd" * len(begun) + word.replace("▁", " "), b""
            continue
        begun += bytes([int(word[3:5], 16)])
        if begun not in BROKEN_OFF:
            whole = begun.decode(errors="ignore").encode() == begun
            text += begun.decode() if whole else "\ufffd" * len(begun)
            begun = b""
    return text + "\ufffd" * len(begun)


@given(
    st.lists(st.sampled_from([*b"\x80\x82\x99\x9f\xa9\xac\xc3\xe2\xf0\xff", *range(256, 262)])),
    STOPS,
)
def test_fallback_text_is_said_up_to_the_first_stop_string(tokens, stops):
    prompt = of(BYTE_FALLBACK, "a")
    said, stopped = pieces(BYTE_FALLBACK, tokens, stops, prompt)
    text = fallback_text(tokens)
    ended = cut(text, stops)
    assert "".join(said) == (text if ended is None else ended)
    assert stopped == (ended is not None)
    assert pieces(BYTE_FALLBACK, tokens[: len(said) - 2], stops, prompt)[0][:-1] == said[:-2]


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

    said, _ = pieces(Counting(), [*of(BYTE_LEVEL, b"a"), *[silent] * 100, *of(BYTE_LEVEL, b"b")])
    assert "".join(said) == "ab"
    assert max(decoded) < 10
