"""Detection of fields in a request that this process does not know.

A client that sets one is newer, and wants something that the answer would silently lack.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

MAX_SEARCHED = 1000
"""The number of submessages that are searched for the unknown field's path."""


def unknown_field(message: Message, data: bytes) -> str | None:
    """Return the path of an unknown field of ``message``, which was parsed from ``data``, by its
    number: "prefix.127". Return None without unknown fields, and "" if none of the first
    ``MAX_SEARCHED`` submessages has one. Discards the unknown fields of ``message``.

    This takes microseconds if protobuf's own encoding of the known fields is as long as ``data``;
    otherwise ``data`` is parsed again.
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
    """Yield ``message`` and all messages in it, each with the prefix of its fields' paths."""
    yield path, message
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        if field.is_repeated:
            for index, each in enumerate(value):
                yield from _parts(each, f"{path}{field.name}[{index}].")
        else:
            yield from _parts(value, f"{path}{field.name}.")
