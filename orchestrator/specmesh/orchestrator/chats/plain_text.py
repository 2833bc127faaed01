"""Distinguishes the special tokens that a chat's template writes from those that the chat's own
text spells, for a prompt in which the latter are plain text.

A break is inserted into each special token that the chat spells, and into text that might become
one together with what follows, so that the prompt only spells the template's own special tokens.
Afterwards the breaks are removed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import pairwise
from typing import Any

from specmesh.decoding.errors import InvalidField
from specmesh.orchestrator.text.marked_tokenizer import MARK
from specmesh.orchestrator.text.spellings import Spellings

WORDS = frozenset(
    {
        *("role", "content", "name", "reasoning_content", "tool_call_id", "tool_calls", "id"),
        *("type", "function", "description", "parameters", "arguments"),
    }
)
"""Words of OpenAI's shape of messages and tools, which templates look for."""


class PlainText:
    """The plain text of one chat; ``spellings`` are those of the model's special tokens.

    ``said`` are the variables to be rendered. Raises ``InvalidField`` for a role that spells a
    special token, since templates write roles where special tokens belong, and for a text with
    ``MARK``.
    """

    def __init__(self, said: Mapping[str, Any], spellings: Spellings) -> None:
        self._spellings = spellings
        for n, message in enumerate(said["messages"]):
            if any(spellings.found(message["role"])):
                raise InvalidField(f"chat.messages[{n}].role", "spells a special token")
        texts = list(_strings(said))
        if any(MARK in text for text in texts):
            raise InvalidField("chat", f"contains U+{ord(MARK):04X}, which is not a character")
        # Digits survive whatever a template does with a text; they must be in no number either.
        self._break = _in_none_of([*texts, json.dumps(said)])
        broken = {name: _changed(value, self._broken) for name, value in said.items()}
        roles = [message["role"] for message in said["messages"]]
        messages = zip(broken["messages"], roles, strict=True)
        self.said = {**broken, "messages": [{**each, "role": role} for each, role in messages]}

    @property
    def num_more_bytes(self) -> int:
        """Bytes that ``said`` has more than what was said."""
        return sum(text.count(self._break) for text in _strings(self.said)) * len(self._break)

    def restored(self, rendered: str) -> tuple[str, str]:
        """Return the prompt that the template has rendered, and the same prompt with the template's
        own special tokens marked.

        Only a marked tokenizer may read it, even if no other text spells a special token: the
        tokenizer's normalizer may turn other text into one, such as one in fullwidth letters."""
        marked = _inserted(MARK, [start for start, _ in self._spellings.found(rendered)], rendered)
        return rendered.replace(self._break, ""), marked.replace(self._break, "")

    def _broken(self, text: str) -> str:
        if text in WORDS:
            return text
        return _inserted(
            self._break, [start + 1 for start in self._spellings.beginnings(text)], text
        )


def _in_none_of(texts: Sequence[str]) -> str:
    """Return digits that are in none of ``texts``.

    They are a hash of the texts. Whoever could tell beforehand which are tried would write them
    all, and each one tried costs a search of all texts. By chance they could differ where an answer
    is resumed, and with them what a template that sorts or measures texts makes of the same chat.
    """
    hashed = blake2b(digest_size=8, person=b"break")
    for text in texts:
        hashed.update(text.encode(errors="surrogatepass"))
    while True:
        hashed.update(b"again")
        digits = f"{int.from_bytes(hashed.digest(), 'big'):020}"
        if not any(digits in text for text in texts):
            return digits


def _inserted(mark: str, places: Sequence[int], text: str) -> str:
    """Return ``text`` with ``mark`` inserted at ``places``, which are ascending."""
    pieces = (text[start:end] for start, end in pairwise((0, *places, len(text))))
    return mark.join(pieces)


def _changed(value: Any, change: Callable[[str], str]) -> Any:
    """Return a JSON value with each of its strings changed, the keys of objects included."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_changed(item, change) for item in value]
    if isinstance(value, dict):
        return {change(key): _changed(member, change) for key, member in value.items()}
    return value


def _strings(value: Any) -> Iterator[str]:
    """Yield the strings in a JSON value, the keys of objects included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)
    elif isinstance(value, Mapping):
        for key, member in value.items():
            yield key
            yield from _strings(member)
