"""Messages of keywords; an error names the one whose value no message can hold."""

from __future__ import annotations

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
        raise type(error)(f"{name}: {error}") from None
