"""Keeps the special tokens that a chat's template writes apart from those that are spelled in what
the chat says, for a prompt in which the latter are text.

A mark is put into the chat after every character that a special token begins with, so that what the
template makes of it spells none but the template's own. Afterwards the marks are taken out again.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from itertools import count

from google.protobuf import struct_pb2

from specmesh.decoding.errors import InvalidField
from specmesh.orchestrator.marked_tokenizer import MARK, marked
from specmesh.v1 import chat_pb2


class PlainText:
    """What one chat says, as plain text; ``special_tokens`` are those of the model as it spells
    them.

    ``chat`` is the chat to be rendered. Raises ``InvalidField`` for a role that spells a special
    token, since templates write roles where special tokens belong, and for a text with ``MARK``.
    """

    def __init__(self, chat: chat_pb2.Chat, special_tokens: Collection[str]) -> None:
        self._special = _any_of(special_tokens)
        for n, message in enumerate(chat.messages):
            if self._special.search(message.role):
                raise InvalidField(f"chat.messages[{n}].role", "spells a special token")
        if any(MARK in text for text in _strings(chat)):
            raise InvalidField("chat", f"holds U+{ord(MARK):04X}, which is no character")
        # Digits get through whatever a template does with a text.
        said = list(_strings(chat))
        self._break = next(
            each
            for each in (f"73059182641{number:09}" for number in count())
            if not any(each in text for text in said)
        )
        self._first = _any_of({token[0] for token in special_tokens if token})
        self.chat = chat_pb2.Chat()
        self.chat.CopyFrom(chat)
        for message in self.chat.messages:
            message.content = self._broken(message.content)
        for value in self.chat.template_arguments.fields.values():
            self._break_within(value)

    @property
    def num_more_bytes(self) -> int:
        """How many bytes the chat to be rendered has more than the chat."""
        return sum(text.count(self._break) for text in _strings(self.chat)) * len(self._break)

    def restored(self, rendered: str) -> tuple[str, str | None]:
        """The prompt that the template has made, and the same with the special tokens marked that
        are the template's own; None if all are."""
        text = rendered.replace(self._break, "")
        ours = self._special.sub(_mark, rendered).replace(self._break, "")
        return text, None if ours == self._special.sub(_mark, text) else ours

    def _broken(self, text: str) -> str:
        return self._first.sub(lambda found: found[0] + self._break, text)

    def _break_within(self, value: struct_pb2.Value) -> None:
        match value.WhichOneof("kind"):
            case "string_value":
                value.string_value = self._broken(value.string_value)
            case "list_value":
                for item in value.list_value.values:
                    self._break_within(item)
            case "struct_value":
                for member in value.struct_value.fields.values():
                    self._break_within(member)


def _mark(found: re.Match[str]) -> str:
    return marked(found[0])


def _any_of(texts: Iterable[str]) -> re.Pattern[str]:
    longest_first = sorted(filter(None, texts), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)) or "(?!)")


def _strings(chat: chat_pb2.Chat) -> Iterator[str]:
    for message in chat.messages:
        yield message.content
    yield from _strings_within(struct_pb2.Value(struct_value=chat.template_arguments))


def _strings_within(value: struct_pb2.Value) -> Iterator[str]:
    match value.WhichOneof("kind"):
        case "string_value":
            yield value.string_value
        case "list_value":
            for item in value.list_value.values:
                yield from _strings_within(item)
        case "struct_value":
            for member in value.struct_value.fields.values():
                yield from _strings_within(member)
