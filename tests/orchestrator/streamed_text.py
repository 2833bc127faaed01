"""What a text stream says token by token, and what it should."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st
from tokenizers import Tokenizer

from specmesh.orchestrator.text.decoder import TextStream
from specmesh.orchestrator.text.token_bytes import TokenBytes

STOPS = st.lists(st.text(alphabet="ab: é€🙂\ufffd", min_size=1, max_size=3), max_size=4)


def pieces(
    tokenizer: Tokenizer,
    tokens: Sequence[int],
    stops: Sequence[str] = (),
    prompt: Sequence[int] = (),
) -> tuple[list[str], bool]:
    """What each token sets free, then what the end does; and whether a stop string was met."""
    stream = TextStream(TokenBytes(tokenizer), prompt, stops)
    said = []
    for token in tokens:
        said.append(stream.push(token))
        if stream.stopped:
            break
    return [*said, stream.flush()], stream.stopped


def cut(text: str, stops: Sequence[str]) -> str | None:
    """``text`` before the stop string that completes first, the longest such one; None if
    there is none."""
    for end in range(len(text) + 1):
        if found := [stop for stop in stops if text[:end].endswith(stop)]:
            return text[: end - max(map(len, found))]
    return None


def undecided(text: str, stops: Sequence[str]) -> int:
    """Length of the longest end of ``text`` that begins a stop string."""
    starts = {stop[:length] for stop in stops for length in range(1, len(stop))}
    return max((len(start) for start in starts if text.endswith(start)), default=0)


CHARACTERS = (chr(code).encode() for code in range(0x80, 0x110000, 64) if code >> 11 != 0x1B)
BROKEN_OFF = {character[:end] for character in CHARACTERS for end in range(1, len(character))}
"""What a character can be broken off at."""
