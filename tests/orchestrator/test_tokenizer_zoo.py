"""Text, bytes, offsets and stop strings of an answer agree with each other, and with decoding it
all at once, whatever kind of tokenizer the model has."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.orchestrator.tokenizer_zoo import END, TURN, ZOO
from tokenizers import Tokenizer

from specmesh.orchestrator.text.decoder import TextStream
from specmesh.orchestrator.text.token_bytes import TokenBytes

TOKEN_BYTES = {name: TokenBytes(tokenizer) for name, tokenizer in ZOO.items()}
NAMES = st.sampled_from(sorted(ZOO))


@st.composite
def answers(draw: st.DrawFn) -> tuple[str, list[int], list[int]]:
    """The name of a tokenizer, a prompt and an answer, in any tokens or such as make a text."""
    name = draw(NAMES)
    return name, draw(_tokens(ZOO[name])), draw(_tokens(ZOO[name]))


def _tokens(tokenizer: Tokenizer) -> st.SearchStrategy[list[int]]:
    any_tokens = st.lists(st.integers(0, tokenizer.get_vocab_size() - 1), max_size=8)
    written = st.text(alphabet="helo wrd,!'t é東🙂</s>|un", max_size=12)
    return any_tokens | written.map(lambda text: tokenizer.encode(text).ids)


def text_of(tokenizer: Tokenizer, prompt: Sequence[int], tokens: Sequence[int]) -> str:
    """What ``tokens`` add to the text of ``prompt``, decoded all at once."""
    before = tokenizer.decode(prompt)
    return tokenizer.decode([*prompt, *tokens])[len(before) :]


@given(answers())
def test_streamed_text_is_what_decoding_all_at_once_gives(answer):
    name, prompt, tokens = answer
    text = text_of(ZOO[name], prompt, tokens)
    assume("\ufffd" not in ZOO[name].decode([*prompt, *tokens]))
    stream = TextStream(TOKEN_BYTES[name], prompt, ())
    assert "".join([*map(stream.push, tokens), stream.flush()]) == text


@given(answers())
def test_bytes_of_the_tokens_are_the_text_and_offsets_count_its_characters(answer):
    name, prompt, tokens = answer
    text = text_of(ZOO[name], prompt, tokens)
    assume("\ufffd" not in ZOO[name].decode(prompt) + text)
    stream = TextStream(TOKEN_BYTES[name], prompt, ())
    written = b""
    for token in tokens:
        complete = written.decode(errors="ignore")
        assert stream.num_characters == len(complete)
        assert text.startswith(complete)
        written += stream.bytes_of(token)
        stream.push(token)
    assert written.decode() == text


@given(answers(), st.data())
def test_likely_tokens_have_the_bytes_that_they_would_add(answer, data):
    name, prompt, tokens = answer
    tokenizer = ZOO[name]
    other = data.draw(st.integers(0, tokenizer.get_vocab_size() - 1))
    stream = TextStream(TOKEN_BYTES[name], prompt, ())
    for token in tokens:
        stream.push(token)
    assume("\ufffd" not in tokenizer.decode([*prompt, *tokens]))
    assume("\ufffd" not in tokenizer.decode([*prompt, *tokens, other]))
    assert stream.bytes_of(other).decode() == text_of(tokenizer, [*prompt, *tokens], [other])


@given(answers(), st.data())
def test_answers_end_before_the_first_stop_string_be_it_text_or_special_tokens(answer, data):
    name, prompt, tokens = answer
    symbols = _said(name, prompt, tokens)
    written = "".join(_spelled(name, symbol) for symbol in symbols)
    starts = st.integers(0, max(len(written) - 1, 0))
    cut_out = st.builds(lambda at, length: written[at : at + length], starts, st.integers(1, 12))
    stops = data.draw(st.lists(cut_out | st.sampled_from([END, TURN, "l"]), max_size=3))
    stops = [stop for stop in stops if stop]
    stream = TextStream(TOKEN_BYTES[name], prompt, stops)
    said = ""
    for token in tokens:
        said += stream.push(token)
        if stream.stopped:
            break
    said += stream.flush()
    ended = _cut(name, symbols, stops)
    text = "".join(filter(lambda symbol: isinstance(symbol, str), symbols))
    assert said == (text if ended is None else text[:ended])
    assert stream.stopped == (ended is not None)


def _said(name: str, prompt: Sequence[int], tokens: Sequence[int]) -> list[str | int]:
    """The characters of an answer, with its special tokens between them."""
    stream = TextStream(TOKEN_BYTES[name], prompt, ())
    symbols: list[str | int] = []
    for token in tokens:
        symbols += [token] if token in TOKEN_BYTES[name].special else stream.push(token)
    return [*symbols, *stream.flush()]


def _spelled(name: str, symbol: str | int) -> str:
    return symbol if isinstance(symbol, str) else TOKEN_BYTES[name].special[symbol]


def _cut(name: str, symbols: Sequence[str | int], stops: Sequence[str]) -> int | None:
    """The length of the text before the first stop string; found by trying all places."""
    for end in range(1, len(symbols) + 1):
        said = list(symbols[:end])
        text = [symbol for symbol in said if isinstance(symbol, str)]
        found = []
        for stop in stops:
            # The last symbol must take part, or the stop string would have ended the text before.
            if isinstance(said[-1], str) and text[-len(stop) :] == list(stop):
                found.append(len(text) - len(stop))
            spelled = TOKEN_BYTES[name].spelled(stop)
            if any(isinstance(each, int) for each in spelled) and said[-len(spelled) :] == spelled:
                found.append(len(text) - sum(isinstance(each, str) for each in spelled))
        if found:
            return min(found)
    return None


@pytest.mark.parametrize("name", ZOO)
def test_a_stop_string_that_is_a_special_token_ends_the_answer(name):
    tokenizer = ZOO[name]
    tokens = [*tokenizer.encode("hello").ids, tokenizer.token_to_id(TURN)]
    stream = TextStream(TOKEN_BYTES[name], (), [TURN])
    said = "".join(map(stream.push, tokens))
    assert stream.stopped
    assert said + stream.flush() == tokenizer.decode(tokens)


def test_a_stop_string_of_text_and_special_tokens_ends_the_answer():
    tokenizer = ZOO["gpt2"]
    tokens = [*tokenizer.encode("hello!").ids, *map(tokenizer.token_to_id, (END, TURN))]
    stream = TextStream(TOKEN_BYTES["gpt2"], (), [f"!{END}{TURN}"])
    assert "".join(map(stream.push, tokens)) == " hello"
    assert stream.stopped


def test_a_stop_string_that_only_the_spelling_of_a_special_token_holds_is_not_there():
    tokenizer = ZOO["gpt2"]
    stream = TextStream(TOKEN_BYTES["gpt2"], (), ["turn", "<"])
    assert stream.push(tokenizer.token_to_id(TURN)) == ""
    assert not stream.stopped


def test_the_first_token_of_a_text_has_no_space_where_its_tokenizer_drops_it():
    tokenizer = ZOO["llama2"]
    first, *_ = tokens = tokenizer.encode("hello").ids
    stream = TextStream(TOKEN_BYTES["llama2"], [tokenizer.token_to_id("<s>")], ())
    offsets = []
    for token in tokens:
        offsets.append(stream.num_characters)
        stream.push(token)
    assert tokenizer.id_to_token(first) == "▁"
    assert offsets[:2] == [0, 0]
    assert stream.num_characters == len("hello")


@pytest.mark.parametrize("name", ZOO)
def test_special_tokens_that_are_kept_are_spelled_where_they_are(name):
    tokenizer = ZOO[name]
    turn, end = tokenizer.token_to_id(TURN), tokenizer.token_to_id(END)
    hello = tokenizer.encode("hello", add_special_tokens=False).ids
    stream = TextStream(TOKEN_BYTES[name], hello, (), frozenset({turn}))
    assert stream.bytes_of(turn) == TURN.encode()
    offsets, said = [], ""
    for token in (turn, *hello, end, turn):
        offsets.append(stream.num_characters)
        said += stream.push(token)
    assert said + stream.flush() == f"{TURN}{said[len(TURN) : -len(TURN)]}{TURN}"
    assert "hello" in said
    assert (offsets[0], offsets[1]) == (0, len(TURN))
    assert offsets[-1] == len(said) - len(TURN)


@pytest.mark.parametrize(
    ("stop", "kept", "left"),
    [
        (f"!{END}{TURN}", {END, TURN}, " hello"),
        (f"!{END}{TURN}", {TURN}, " hello"),
        (f"!{END}{TURN}", {END}, " hello"),
        (f"{END}{TURN}", {END}, " hello!"),
        ("turn", {END, TURN}, f" hello!{END}<|"),
        ("turn", {END}, None),
        (END, {TURN}, " hello!"),
    ],
)
def test_stop_strings_are_found_whether_special_tokens_are_kept_or_not(stop, kept, left):
    tokenizer = ZOO["gpt2"]
    tokens = [*tokenizer.encode("hello!").ids, *map(tokenizer.token_to_id, (END, TURN))]
    ids = frozenset(map(tokenizer.token_to_id, kept))
    stream = TextStream(TOKEN_BYTES["gpt2"], (), [stop], ids)
    said = ""
    for token in tokens:
        said += stream.push(token)
        if stream.stopped:
            break
    assert stream.stopped is (left is not None)
    assert left is None or said == left


@given(st.lists(st.sampled_from(["a", "€", "b ", END, TURN]), max_size=8), st.booleans())
def test_a_character_that_a_kept_token_breaks_off_is_replaced(words, keep):
    tokenizer = ZOO["gpt2"]
    tokens = [
        token
        for word in words
        for token in tokenizer.encode(word, add_special_tokens=False).ids[: 1 if word == "€" else 9]
    ]
    kept = frozenset(map(tokenizer.token_to_id, (END, TURN))) if keep else frozenset()
    stream = TextStream(TOKEN_BYTES["gpt2"], (), (), kept)
    said = "".join(map(stream.push, tokens)) + stream.flush()
    if keep:
        assert said == tokenizer.decode(tokens, skip_special_tokens=False)
