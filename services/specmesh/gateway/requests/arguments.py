"""Validation of chat template arguments against the limits of the protocol."""

from __future__ import annotations

from specmesh.gateway.errors import ApiError

FIELD = "chat_template_kwargs"
MAX_ARGUMENT_DEPTH = 24
"""The orchestrator's own limit. Protobuf fails beyond some 30 levels, without a clear error."""
MAX_WHOLE_NUMBER = 2**53
"""The protocol's numbers are doubles, which round larger integers."""
MAX_ARGUMENT_VALUES = 1024
"""Each value is written into one message per choice on the event loop, while streams wait."""


def checked_arguments(arguments: object) -> object:
    """Return ``arguments``, which are JSON.

    Raises ``ApiError`` for values that the protocol would change, and for more values or nesting
    than the limits. This runs before pydantic's own validation.
    """
    if isinstance(arguments, dict):
        _Check().walk(FIELD, arguments, 0)
    return arguments


class _Check:
    def __init__(self) -> None:
        self._num_values = 0

    def walk(self, path: str, value: object, depth: int) -> None:
        self._num_values += 1
        if self._num_values > MAX_ARGUMENT_VALUES:
            message = f"{FIELD!r} has more than {MAX_ARGUMENT_VALUES} values"
            raise ApiError.invalid(FIELD, message)
        if depth > MAX_ARGUMENT_DEPTH:
            message = f"{FIELD!r} is nested more than {MAX_ARGUMENT_DEPTH} deep"
            raise ApiError.invalid(FIELD, message)
        if isinstance(value, dict):
            for name, member in value.items():
                self.walk(f"{path}.{name}", member, depth + 1)
        elif isinstance(value, list):
            for number, member in enumerate(value):
                self.walk(f"{path}[{number}]", member, depth + 1)
        elif isinstance(value, int) and abs(value) > MAX_WHOLE_NUMBER:
            raise ApiError.invalid(path, f"{path[:64]!r} is an integer beyond 2^53")
