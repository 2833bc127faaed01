"""Fields of a request that this process does not know.

Whoever sets one is newer, and wants something that would silently be left out of the answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

MAX_SEARCHED = 1000
"""Parts of a message that are searched for the field's name."""


def unknown_field(message: Message, data: bytes) -> str | None:
    """The path of an unknown field of ``message``, which was read from ``data``: "prefix.127", by
    its number; empty if it is none of the first ``MAX_SEARCHED`` parts that has it, None if none
    has. Those of ``message`` are discarded.

    Takes microseconds for a message as protobuf itself writes it: that has as many bytes as are
    left. Others are read again.
    """
    message.DiscardUnknownFields()
    num_known = message.ByteSize()
    if num_known == len(data):
        return None
    whole = type(message).FromString(data)
    if whole.ByteSize() == num_known:
        return None
    for path, part in islice(_parts(whole, ""), MAX_SEARCHED):
        unknown = UnknownFieldSet(part)
        if len(unknown):
            return f"{path}{unknown[0].field_number}"
    return ""


def _parts(message: Any, path: str) -> Iterator[tuple[str, Any]]:
    """``message`` and all messages in it, each with what its fields' paths begin with."""
    yield path, message
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        if field.is_repeated:
            for index, each in enumerate(value):
                yield from _parts(each, f"{path}{field.name}[{index}].")
        else:
            yield from _parts(value, f"{path}{field.name}.")
