"""A session as it is stored: its fixed part, its writer, its generated tokens, and errors.

SessionError
  SessionNotFound    no such session, or it expired, or the secret or its owner is wrong
  SessionIdTaken     another session has the id
  SessionDamaged     what is stored of it is not what was written
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
"""How a session has ended that its client cancelled."""
UNCHECKED = 1 << 31
"""The bit that marks a stored token which the target did not verify. No vocabulary reaches it."""


class SessionError(Exception):
    """Anything that the session store refuses or cannot do."""


class SessionNotFound(SessionError):
    """There is no such session, or it expired, or the secret or its owner is wrong."""


class SessionIdTaken(SessionError):
    """There is another session of this id."""


class SessionDamaged(SessionError):
    """What is stored of the session can't be what was written: nobody can go on from it."""


class StoredSessionCancelled(SessionError):
    """The session's client has cancelled it: nobody may write or take it."""


class StaleEpoch(SessionError):
    """The session is at ``current_epoch``, not below that of the call."""

    def __init__(self, session_id: str, current_epoch: int) -> None:
        super().__init__(f"session {session_id!r} is at epoch {current_epoch}")
        self.current_epoch = current_epoch


class StoreConflict(SessionError):
    """What is to be written does not continue what is stored: a gap, or other tokens."""


class StoreUnavailable(SessionError):
    """Redis did not answer in time or refused to work; the command may have run."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What makes a session a caller's: its secret, ``resume_token``, and ``owner``, the identity
    that has begun it ("" where nobody proves one). Only a hash of both is stored."""

    session_id: str
    resume_token: bytes
    owner: str


@dataclass(frozen=True, slots=True)
class SessionStart:
    """What is fixed when an answer begins.

    ``model`` and ``request`` mean nothing to the store. ``prompt`` must hold a token.
    """

    claim: Claim
    model: str
    request: bytes
    prompt: tuple[int, ...]

    @property
    def session_id(self) -> str:
        """Its name: no secret, unlike the rest of ``claim``."""
        return self.claim.session_id


@dataclass(frozen=True, slots=True)
class Writer:
    """A process that writes a session: a random id of its own, under the client's epoch."""

    epoch: int
    writer_id: str


@dataclass(frozen=True, slots=True)
class Generated:
    """Generated tokens from the first one on, and the indices, from 0, of those that the target did
    not verify."""

    token_ids: tuple[int, ...] = ()
    unchecked: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class StoredSession:
    """A session as it stands: ``ended`` says why its answer was complete, or is ``CANCELLED``, or
    empty while more may come. It expires ``expires_in_s`` from now unless something is written."""

    session: SessionStart
    epoch: int
    generated: Generated
    ended: str
    expires_in_s: float


def pack(token_ids: Sequence[int]) -> bytes:
    """Tokens as they are stored: little-endian uint32."""
    return struct.pack(f"<{len(token_ids)}I", *token_ids)


def unpack(tokens: bytes) -> tuple[int, ...]:
    """The reverse of ``pack``; a part of a token at the end, which nobody wrote, is left out."""
    num_tokens = len(tokens) // TOKEN_BYTES
    return struct.unpack_from(f"<{num_tokens}I", tokens)


def pack_generated(token_ids: Sequence[int], unchecked: Collection[int]) -> bytes:
    """Generated tokens as they are stored, those at the indices ``unchecked`` marked."""
    marked = [
        token | UNCHECKED if index in unchecked else token for index, token in enumerate(token_ids)
    ]
    return pack(marked)


def read_generated(tokens: bytes) -> Generated:
    """The reverse of ``pack_generated``."""
    marked = unpack(tokens)
    unchecked = frozenset(index for index, token in enumerate(marked) if token & UNCHECKED)
    return Generated(tuple(token & ~UNCHECKED for token in marked), unchecked)
