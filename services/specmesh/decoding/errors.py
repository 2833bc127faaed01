"""The error that invalid parameters raise."""

from __future__ import annotations


class InvalidField(ValueError):
    """A field of a request is wrong: ``field`` says which, ``reason`` what must hold."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason
