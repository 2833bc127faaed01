"""Messages of keywords; an error names the one whose value no message can hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from google.protobuf.message import Message

M = TypeVar("M", bound=Message)


def filled(message: type[M], **fields: object) -> M:
    """A message with these fields; None leaves one out.

    Raises TypeError and ValueError, with the field's name, for what protobuf refuses.
    """
    try:
        return message(**fields)
    except (TypeError, ValueError):
        for name, value in fields.items():
            _check(message, name, value)
        raise


def _check(message: type[Message], name: str, value: object) -> None:
    try:
        message(**{name: value})
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name}: {_reason(message, name, value, error)}") from None


def _reason(message: type[Message], name: str, value: object, error: Exception) -> str:
    """Say what is wrong with ``value``: of a text that is none, Protobuf says nothing."""
    field = message.DESCRIPTOR.fields_by_name[name]
    if field.type != field.TYPE_STRING:
        return str(error)
    if field.is_repeated and isinstance(value, Sequence):
        wrong = next((each for each in value if not isinstance(each, str)), value)
        expected = "strings"
    else:
        wrong, expected = value, "a string"
    return str(error) if isinstance(wrong, str) else f"expected {expected}, got {wrong!r}"
