"""Distinguishes the special tokens that a chat's template writes from those that the chat's own
text spells, for a prompt in which the latter are plain text.

A break is inserted into each special token that the chat spells, and into text that might become
one together with what follows, so that the prompt only spells the template's own special tokens.
Afterwards the breaks are removed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count, pairwise

from google.protobuf import struct_pb2

from specmesh.decoding.errors import InvalidField
from specmesh.orchestrator.text.marked_tokenizer import MARK
from specmesh.orchestrator.text.spellings import Spellings
from specmesh.v1 import chat_pb2


class PlainText:
    """The text of one chat as plain text; ``spellings`` are those of the model's special tokens.

    ``chat`` is the chat to be rendered. Raises ``InvalidField`` for a role that spells a special
    token, since templates write roles where special tokens belong, and for a text with ``MARK``.
    """

    def __init__(self, chat: chat_pb2.Chat, spellings: Spellings) -> None:
        self._spellings = spellings
        for n, message in enumerate(chat.messages):
            if any(spellings.found(message.role)):
                raise InvalidField(f"chat.messages[{n}].role", "spells a special token")
        if any(MARK in text for text in _strings(chat)):
            raise InvalidField("chat", f"contains U+{ord(MARK):04X}, which is not a character")
        # Digits survive whatever a template does with a text.
        said = list(_strings(chat))
        self._break = next(
            each for each in map(str, count(61803398)) if not any(each in text for text in said)
        )
        self.chat = chat_pb2.Chat()
        self.chat.CopyFrom(chat)
        for message in self.chat.messages:
            for name, text in _said(message):
                setattr(message, name, self._broken(text))
        for value in self.chat.template_arguments.fields.values():
            self._break_within(value)

    @property
    def num_more_bytes(self) -> int:
        """Bytes that ``chat`` has more than the original chat."""
        return sum(text.count(self._break) for text in _strings(self.chat)) * len(self._break)

    def restored(self, rendered: str) -> tuple[str, str | None]:
        """Return the prompt that the template has rendered, and the same prompt with the template's
        own special tokens marked; None if all special tokens are the template's own."""
        text = rendered.replace(self._break, "")
        ours = self._marked(rendered).replace(self._break, "")
        return text, None if ours == self._marked(text) else ours

    def _marked(self, text: str) -> str:
        return _inserted(MARK, [start for start, _ in self._spellings.found(text)], text)

    def _broken(self, text: str) -> str:
        return _inserted(
            self._break, [start + 1 for start in self._spellings.beginnings(text)], text
        )

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


def _inserted(mark: str, places: Sequence[int], text: str) -> str:
    """Return ``text`` with ``mark`` inserted at ``places``, which are ascending."""
    pieces = (text[start:end] for start, end in pairwise((0, *places, len(text))))
    return mark.join(pieces)


def _said(message: chat_pb2.ChatMessage) -> list[tuple[str, str]]:
    """Return the text fields of a message except for its role, as (name, text)."""
    return [(field.name, text) for field, text in message.ListFields() if field.name != "role"]


def _strings(chat: chat_pb2.Chat) -> Iterator[str]:
    for message in chat.messages:
        yield from (text for _, text in _said(message))
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
