"""The error that invalid parameters raise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class InvalidField(ValueError):
    """A field of a request is wrong: ``field`` is its name, ``reason`` says what must hold."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason


class ContextExceeded(InvalidField):
    """A prompt leaves no room in the model's context. It is distinct from other wrong fields
    because the caller can choose a model with a longer context or a shorter prompt."""


@contextmanager
def within(field: str) -> Iterator[None]:
    """Prefix the names of wrong fields in the block with ``field``, the message that holds them."""
    try:
        yield
    except InvalidField as error:
        raise type(error)(f"{field}.{error.field}", error.reason) from None
