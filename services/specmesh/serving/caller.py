"""The identity of the caller of the current call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_identity: ContextVar[str] = ContextVar("identity", default="")


def identity() -> str:
    """Return the identity that the caller has proved or a gateway has named; "" if unknown.

    A session that one identity began is neither shown to another nor resumed by it.
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
