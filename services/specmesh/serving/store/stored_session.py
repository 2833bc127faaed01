"""The parts of a stored session (start, writer, generated tokens), and the errors of its store.

SessionError
  SessionNotFound    no such session, or it expired, or the secret or its owner is wrong
  SessionIdTaken     another session has the id
  SessionDamaged     the stored session is not what was written
  SessionCancelled   its client has cancelled it
  StaleEpoch         a later writer, or another one, has the session
  StoreConflict      the tokens do not continue those stored
  StoreUnavailable   no answer; whether the command ran is unknown
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Sequence
from dataclasses import dataclass

TOKEN_BYTES = 4
CANCELLED = "cancelled"
"""The end of a session that its client cancelled."""
UNCHECKED = 1 << 31
"""The bit that marks a stored token that the target did not verify. No token id reaches it."""


class SessionError(Exception):
    """The base of all errors of the session store."""


class SessionNotFound(SessionError):
    """There is no such session, or it expired, or the secret or its owner is wrong."""


class SessionIdTaken(SessionError):
    """Another session has this id."""


class SessionDamaged(SessionError):
    """The stored session can't be what was written, so nobody can continue it."""


class StoredSessionCancelled(SessionError):
    """The session's client has cancelled it, so nobody may write or take it."""


class StaleEpoch(SessionError):
    """The session is at ``current_epoch``: a later one than the call's, or the same with another
    writer."""

    def __init__(self, session_id: str, current_epoch: int) -> None:
        super().__init__(f"session {session_id!r} is at epoch {current_epoch}")
        self.current_epoch = current_epoch


class StoreConflict(SessionError):
    """The tokens to write don't continue the stored ones: there is a gap, or others are stored."""


class StoreUnavailable(SessionError):
    """Redis did not answer in time or refused the command, which may have run."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The proof that a session is the caller's: its secret ``resume_token``, and ``owner``, the
    identity that began it ("" without authentication). Only a hash of both is stored."""

    session_id: str
    resume_token: bytes
    owner: str


@dataclass(frozen=True, slots=True)
class SessionStart:
    """The part of a session that is fixed when its answer begins.

    The store doesn't interpret ``model`` and ``request``. ``prompt`` must hold a token.
    """

    claim: Claim
    model: str
    request: bytes
    prompt: tuple[int, ...]

    @property
    def session_id(self) -> str:
        """The session's id, which is no secret, unlike the rest of ``claim``."""
        return self.claim.session_id


@dataclass(frozen=True, slots=True)
class Writer:
    """A writer of a session: a random id, and the epoch, which the client chooses."""

    epoch: int
    writer_id: str


@dataclass(frozen=True, slots=True)
class Generated:
    """Generated tokens, and the indices, from 0, of those that the target did not verify."""

    token_ids: tuple[int, ...] = ()
    unchecked: frozenset[int] = frozenset()

    def begins_with(self, start: Generated) -> bool:
        """Return whether the first of these tokens are those of ``start``."""
        length = len(start.token_ids)
        unchecked = {index for index in self.unchecked if index < length}
        return self.token_ids[:length] == start.token_ids and unchecked == start.unchecked


@dataclass(frozen=True, slots=True)
class StoredSession:
    """The current state of a session. ``ended`` is the reason why its answer is complete, or
    ``CANCELLED``, or empty while more tokens may come. The session expires in ``expires_in_s``
    unless something is written."""

    session: SessionStart
    epoch: int
    generated: Generated
    ended: str
    expires_in_s: float

    @property
    def is_complete(self) -> bool:
        """True if no more tokens come, because the answer ended by itself."""
        return self.ended not in {"", CANCELLED}


def pack(token_ids: Sequence[int]) -> bytes:
    """Encode tokens for the store, as little-endian uint32."""
    return struct.pack(f"<{len(token_ids)}I", *token_ids)


def unpack(tokens: bytes) -> tuple[int, ...]:
    """Decode the result of ``pack``; an incomplete token at the end is dropped as damage."""
    num_tokens = len(tokens) // TOKEN_BYTES
    return struct.unpack_from(f"<{num_tokens}I", tokens)


def pack_generated(token_ids: Sequence[int], unchecked: Collection[int]) -> bytes:
    """Encode generated tokens for the store, marking those at the indices ``unchecked``."""
    marked = [
        token | UNCHECKED if index in unchecked else token for index, token in enumerate(token_ids)
    ]
    return pack(marked)


def read_generated(tokens: bytes) -> Generated:
    """Decode the result of ``pack_generated``."""
    marked = unpack(tokens)
    unchecked = frozenset(index for index, token in enumerate(marked) if token & UNCHECKED)
    return Generated(tuple(token & ~UNCHECKED for token in marked), unchecked)
