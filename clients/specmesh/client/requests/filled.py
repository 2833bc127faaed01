"""Protobuf messages built from keyword arguments, with errors that name the wrong field."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

from google.protobuf.message import Message

M = TypeVar("M", bound=Message)


def filled(message: type[M], **fields: object) -> M:
    """Build a message with these fields, omitting those that are None.

    Raises TypeError or ValueError, with the field's name, for a value that protobuf refuses.
    """
    try:
        return message(**fields)
    except (TypeError, ValueError):
        for name, value in fields.items():
            _check(message, name, value)
        raise


def filled_from(message: type[M], options: Mapping[str, object]) -> M:
    """Build a message with those ``options`` that are its fields, as ``filled`` does."""
    known = message.DESCRIPTOR.fields_by_name
    return filled(message, **{name: value for name, value in options.items() if name in known})


def _check(message: type[Message], name: str, value: object) -> None:
    try:
        message(**{name: value})
    except (TypeError, ValueError) as error:
        raise like(error, f"{name}: {_reason(message, name, value, error)}") from None


@contextmanager
def naming(place: str) -> Iterator[None]:
    """Put ``place``, such as "prompt: " or "messages[0].", before the message of a TypeError or
    ValueError in the block."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise like(error, f"{place}{error}") from None


def like(error: TypeError | ValueError, message: str) -> TypeError | ValueError:
    """Return an error of the kind of ``error`` with this ``message``. Half of a surrogate pair,
    which no text can hold, raises a UnicodeEncodeError, which takes more than a message."""
    return TypeError(message) if isinstance(error, TypeError) else ValueError(message)


def _reason(message: type[Message], name: str, value: object, error: Exception) -> str:
    """Describe what is wrong with ``value``: protobuf's own error for a string field says
    nothing."""
    field = message.DESCRIPTOR.fields_by_name[name]
    if field.type != field.TYPE_STRING:
        return str(error)
    if field.is_repeated and isinstance(value, Sequence):
        wrong = next((each for each in value if not isinstance(each, str)), "")
        expected = "strings"
    else:
        wrong, expected = value, "a string"
    return str(error) if isinstance(wrong, str) else f"expected {expected}, got {wrong!r}"
