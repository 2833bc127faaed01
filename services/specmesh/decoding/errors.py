"""The error that invalid parameters raise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class InvalidField(ValueError):
    """A field of a request is wrong: ``field`` says which, ``reason`` what must hold."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason


class ContextExceeded(InvalidField):
    """A prompt leaves no room in the model's context. Callers are told so apart from other wrong
    fields: a model with a longer context, or a shorter prompt, is the way out."""


@contextmanager
def within(field: str) -> Iterator[None]:
    """Wrong fields of the message in ``field`` are named by their path from there."""
    try:
        yield
    except InvalidField as error:
        raise type(error)(f"{field}.{error.field}", error.reason) from None
