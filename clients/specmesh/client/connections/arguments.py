"""Checks of a client's arguments, which are refused by name before anything is sent."""

from __future__ import annotations

from collections.abc import Sequence
from types import UnionType
from typing import Any

import grpc


def check_kind(name: str, value: object, kind: type | UnionType, expected: str) -> None:
    """Raise TypeError, naming ``name``, unless ``value`` is of ``kind``, which is ``expected``."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be {expected}, not {type(value).__name__}")


def check_count(name: str, count: object, least: int = 0) -> None:
    """Raise TypeError or ValueError, naming ``name``, unless ``count`` is a whole number of at
    least ``least``."""
    if not isinstance(count, int) or isinstance(count, bool):
        raise TypeError(f"{name} must be a whole number, not {type(count).__name__}")
    if count < least:
        raise ValueError(f"{name} must be at least {least}, not {count}")


def check_interceptors(interceptors: Any) -> None:
    """Raise TypeError unless ``interceptors`` are a sequence of grpc.aio's."""
    check_kind("interceptors", interceptors, Sequence, "a sequence")
    for at, each in enumerate(interceptors):
        check_kind(f"interceptors[{at}]", each, grpc.aio.ClientInterceptor, "one of grpc.aio's")


def checked_channel_options(options: Any) -> tuple[tuple[str, Any], ...]:
    """Return ``options``, which an iterator gives only once. Raise TypeError unless they are pairs
    of a name and a value."""
    try:
        pairs = tuple(dict(options).items())
    except (TypeError, ValueError):
        raise TypeError(f"channel_options must be (name, value) pairs, not {options!r}") from None
    for name, _ in pairs:
        check_kind("channel_options: a name", name, str, "a string")
    return pairs
