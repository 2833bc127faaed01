"""A session as the store keeps it: what is settled, who writes, what was said, what goes wrong.

SessionError
  SessionNotFound    no such session, or it expired, or that isn't its secret
  StaleEpoch         the client has gone to somebody else
  StoreConflict      the tokens do not continue those stored
  StoreUnavailable   no answer; whether the command ran is unknown
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Sequence
from dataclasses import dataclass

TOKEN_BYTES = 4
UNCHECKED = 1 << 31
"""This bit of a stored token says that the target did not check it. No vocabulary reaches it."""


class SessionError(Exception):
    """Anything that the session store refuses or cannot do."""


class SessionNotFound(SessionError):
    """There is no such session, or it expired, or its secret is another."""


class StaleEpoch(SessionError):
    """The session stands at ``current_epoch``, not below the one named."""

    def __init__(self, session_id: str, current_epoch: int) -> None:
        super().__init__(f"session {session_id!r} is at epoch {current_epoch}")
        self.current_epoch = current_epoch


class StoreConflict(SessionError):
    """What is to be written does not fit what is stored: a gap, or other tokens."""


class StoreUnavailable(SessionError):
    """Redis did not answer in time or refused to work; the command may have run."""


@dataclass(frozen=True, slots=True)
class Session:
    """What is settled for good when an answer begins.

    ``resume_token`` is the client's secret; the store keeps its hash alone. ``model`` and
    ``request`` are for the caller to make sense of. ``prompt`` must hold a token.
    """

    session_id: str
    resume_token: bytes
    model: str
    request: bytes
    prompt: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Writer:
    """Who writes: a random id of its own under the client's epoch."""

    epoch: int
    writer_id: str


@dataclass(frozen=True, slots=True)
class Generated:
    """Generated tokens from the first one on, and the places, from 0, of those that the target
    did not check."""

    token_ids: tuple[int, ...] = ()
    unchecked: frozenset[int] = frozenset()


def pack(token_ids: Sequence[int]) -> bytes:
    """Tokens as they are stored: little-endian uint32."""
    return struct.pack(f"<{len(token_ids)}I", *token_ids)


def unpack(tokens: bytes) -> tuple[int, ...]:
    """The reverse of ``pack``."""
    return struct.unpack(f"<{len(tokens) // TOKEN_BYTES}I", tokens)


def pack_generated(token_ids: Sequence[int], unchecked: Collection[int]) -> bytes:
    """Generated tokens as they are stored, those at the places ``unchecked`` marked."""
    marked = [
        token | UNCHECKED if place in unchecked else token for place, token in enumerate(token_ids)
    ]
    return pack(marked)


def read_generated(tokens: bytes) -> Generated:
    """The reverse of ``pack_generated``."""
    marked = unpack(tokens)
    unchecked = frozenset(place for place, token in enumerate(marked) if token & UNCHECKED)
    return Generated(tuple(token & ~UNCHECKED for token in marked), unchecked)
