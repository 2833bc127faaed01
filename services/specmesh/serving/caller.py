"""Who made the call that is being answered."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_identity: ContextVar[str] = ContextVar("identity", default="")


def identity() -> str:
    """The identity that the caller has proved, or that a gateway has named; "" where none is known.

    What one identity began is neither shown to another nor carried on for it.
    """
    return _identity.get()


@contextmanager
def identified(identity: str) -> Iterator[None]:
    """Answer a call on behalf of ``identity``."""
    token = _identity.set(identity)
    try:
        yield
    finally:
        _identity.reset(token)
