"""The store of sessions in Redis: each session's request and committed tokens, which must outlive a
pod.

One orchestrator at a time writes a session, under an epoch that its client chooses: each stream
that the client opens has a higher epoch than those before. Every write names its epoch and its
writer, a random id, and changes nothing if the session has moved on, so an orchestrator that lost
its session (to a pause, a partition, an impatient client) cannot write into its successor's answer.
Since the client counts, no epoch occurs twice even if the store loses its state; only a client that
has lost count, because the response to its start was lost, leaves the epoch to the store.
``lua/sessions.lua`` holds the transitions.

Replication in Redis is asynchronous and its disk may lag, so after a failover or a restart the last
commits, or the whole session, can be gone. The writer, which still has the tokens, then gets
StoreConflict or SessionNotFound and puts the whole session again, as it does when the stored
session is damaged. A client whose writer is gone resumes from the tokens that it has itself.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Collection, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Any, Self

from redis.asyncio import Redis

from specmesh.serving.metrics import DAMAGED
from specmesh.serving.settings import DEFAULT_PREFIX, RedisTls
from specmesh.serving.store.redis_client import connect
from specmesh.serving.store.redis_store import RedisStore
from specmesh.serving.store.redis_url import address_of
from specmesh.serving.store.script_pipeline import ScriptPipeline
from specmesh.serving.store.stored_session import (
    TOKEN_BYTES,
    Claim,
    Generated,
    SessionDamaged,
    SessionIdTaken,
    SessionNotFound,
    SessionStart,
    StaleEpoch,
    StoreConflict,
    StoredSession,
    StoredSessionCancelled,
    StoreUnavailable,
    Writer,
    pack,
    pack_generated,
    read_generated,
    unpack,
)

log = logging.getLogger(__name__)

_damaged = DAMAGED.instrument()
_REPLY_BYTES = {"read": 1 << 17, "take": 1 << 17}
"""The size of a reply that holds a session's tokens: that of 32,000. What is longer takes longer,
but so few share a round trip that it still arrives within a timeout."""
_SCRIPT = files("specmesh.serving.store").joinpath("lua", "sessions.lua")


class SessionStore(RedisStore):
    """The sessions of one mesh in one Redis.

    A call that raised StoreUnavailable may be retried. Invariant: a call that timed out may run
    late, even after others, but never undoes their writes.
    """

    def __init__(
        self,
        client: Redis,
        *,
        address: str = "",
        prefix: str = DEFAULT_PREFIX,
        timeout_s: float = 1.0,
        ttl_s: int = 600,
        finished_ttl_s: int = 60,
    ) -> None:
        super().__init__(client, address=address, prefix=prefix, timeout_s=timeout_s)
        self._calls = ScriptPipeline(client, _SCRIPT.read_text("utf-8"), self._answer_all)
        self._ttl_s = ttl_s
        self._finished_ttl_s = finished_ttl_s

    @classmethod
    def from_url(
        cls,
        url: str,
        *,
        tls: RedisTls | None = None,
        prefix: str = DEFAULT_PREFIX,
        timeout_s: float = 1.0,
        ttl_s: int = 600,
        finished_ttl_s: int = 60,
    ) -> Self:
        """Make a store on a URL (see ``redis_client.connect``).

        Every key begins with ``prefix``, which separates meshes. A session expires ``ttl_s`` after
        its last write, or ``finished_ttl_s`` after it was finished or cancelled.
        """
        return cls(
            connect(url, tls),
            address=address_of(url),
            prefix=prefix,
            timeout_s=timeout_s,
            ttl_s=ttl_s,
            finished_ttl_s=finished_ttl_s,
        )

    async def aclose(self) -> None:
        """Close all connections."""
        await self._calls.aclose()
        await super().aclose()

    async def begin(self, session: SessionStart, writer: Writer, generated: Generated) -> bool:
        """Store a new session and return True; if it is already stored, return False and change
        nothing.

        Raises SessionIdTaken if another caller's session, or another session, has the id;
        ValueError for an empty prompt.
        """
        begun, *damage = await self._run(
            session.session_id, "begin", self._ttl_s, *_whole(session, writer, generated)
        )
        if damage:
            damaged(session.session_id, damage[0].decode())
        return bool(begun)

    async def put(self, session: SessionStart, writer: Writer, generated: Generated) -> None:
        """Store a whole session, replacing one of an earlier epoch.

        If ``writer`` has already stored it with at least these tokens, nothing changes.
        Raises StaleEpoch, StoredSessionCancelled, ValueError for an empty prompt.
        """
        await self._run(session.session_id, "put", self._ttl_s, *_whole(session, writer, generated))

    async def append(
        self,
        session_id: str,
        writer: Writer,
        *,
        first_index: int,
        token_ids: Sequence[int],
        unchecked: Collection[int] = (),
    ) -> None:
        """Commit generated tokens.

        ``unchecked`` are the indices in ``token_ids`` of tokens that the target did not verify;
        ``first_index`` is the number of generated tokens before ``token_ids``. Tokens that are
        already stored are skipped, so an append may be retried, or overlap the last one. Raises
        StaleEpoch; StoredSessionCancelled; SessionNotFound; StoreConflict if the tokens would leave
        a gap or differ from those stored, or if the session is at an earlier epoch.
        """
        if first_index < 0:
            raise ValueError(f"first_index must not be negative: {first_index}")
        packed = pack_generated(token_ids, unchecked)
        await self._run(
            session_id,
            "append",
            self._ttl_s,
            writer.epoch,
            writer.writer_id,
            first_index,
            packed,
        )

    async def finish(self, session_id: str, writer: Writer, num_generated: int, why: str) -> None:
        """Mark the answer as complete with ``num_generated`` tokens, and let the session expire
        soon. The reason ``why`` is stored but not interpreted.

        A writer appends nothing afterwards. Tokens after these are none of its own, and removed.
        Raises SessionNotFound, StaleEpoch, StoredSessionCancelled, or StoreConflict if the session
        is at an earlier epoch or lacks tokens.
        """
        await self._run(
            *(session_id, "finish", self._finished_ttl_s, writer.epoch, writer.writer_id),
            *(num_generated, why),
        )

    async def cancel(self, claim: Claim) -> None:
        """Forbid any further write or take of the session, and let it expire soon. Nothing changes
        if it has ended. Raises SessionNotFound."""
        await self._run(claim.session_id, "cancel", self._finished_ttl_s, _proof(claim))

    async def read(self, claim: Claim) -> StoredSession:
        """Return the session, without extending its life. Raises SessionNotFound and
        SessionDamaged."""
        epoch, model, request, ended, ttl_ms, num_prompt_tokens, tokens = await self._run(
            claim.session_id, "read", self._ttl_s, _proof(claim)
        )
        try:
            model, ended = model.decode(), ended.decode()
        except UnicodeDecodeError as error:
            damaged(claim.session_id, "its model or its end")
            raise SessionDamaged(f"session {claim.session_id!r} is damaged") from error
        prompt_bytes = num_prompt_tokens * TOKEN_BYTES
        session = SessionStart(claim, model, request, unpack(tokens[:prompt_bytes]))
        generated = read_generated(tokens[prompt_bytes:])
        return StoredSession(session, epoch, generated, ended, ttl_ms / 1e3)

    async def take(
        self,
        claim: Claim,
        epoch: int | None,
        writer_id: str,
        received: Generated,
        *,
        exactly: bool = False,
    ) -> tuple[Writer, Generated]:
        """Make ``writer_id`` the session's writer, in place of writers of earlier epochs.

        Returns the writer, and the tokens to continue from: the stored ones if they begin with
        ``received``, the client's own, and not ``exactly``; else ``received``, which replaces them.
        Raises SessionNotFound, StoredSessionCancelled, or StaleEpoch if the session is at ``epoch``
        or a later one. Without an epoch, for a client that has lost count, the writer gets the next
        one; such a call, if it runs late, takes the session from its writer at that time.
        """
        taken_epoch, generated = await self._run(
            *(claim.session_id, "take", self._ttl_s, _proof(claim)),
            *("" if epoch is None else epoch, writer_id),
            pack_generated(received.token_ids, received.unchecked),
            int(exactly),
        )
        return Writer(taken_epoch, writer_id), read_generated(generated)

    async def read_prefix(self, session_id: str, length: int) -> tuple[int, ...]:
        """Return the first ``length`` (at least 1) tokens of prompt and committed tokens, or fewer
        if fewer are committed.

        They may differ from those that the caller expects, since a client may continue from tokens
        of its own. Raises SessionNotFound.
        """
        if length < 1:
            raise ValueError(f"length must be at least 1: {length}")
        key = _keys(self._prefix, session_id)[1]
        tokens: Any = await self._answer(
            "read_prefix", self._client.getrange(key, 0, length * TOKEN_BYTES - 1)
        )
        if not tokens:
            raise SessionNotFound(f"no session {session_id!r}")
        return read_generated(tokens).token_ids

    async def _run(
        self, session_id: str, transition: str, ttl_s: int, *args: str | bytes | int
    ) -> list[Any]:
        """Run a transition of the script; return the values after its status."""
        now = asyncio.get_running_loop().time
        began = now()
        reply = await self._calls.run(
            *(transition, _keys(self._prefix, session_id), (transition, ttl_s, *args)),
            reply_bytes=_REPLY_BYTES.get(transition, 0),
        )
        match reply:
            case [b"ok", *values]:
                return values
            case Exception():
                await self._broke(transition, reply, now() - began)
                raise StoreUnavailable(f"Redis: {reply}") from reply
            case [b"not_found", *damage]:
                if damage:
                    damaged(session_id, damage[0].decode())
                raise SessionNotFound(f"no session {session_id!r}")
            case [b"taken"]:
                raise SessionIdTaken(f"another session has the id {session_id!r}")
            case [b"cancelled"]:
                raise StoredSessionCancelled(f"session {session_id!r} was cancelled")
            case [b"stale", current_epoch]:
                raise StaleEpoch(session_id, current_epoch)
            case [b"conflict", reason]:
                raise StoreConflict(f"session {session_id!r}: {reason.decode()}")
        raise AssertionError(f"the script has no such reply: {reply!r}")


@lru_cache(maxsize=1024)
def _keys(prefix: str, session_id: str) -> tuple[bytes, bytes]:
    """Return the keys of a session and of its tokens."""
    # The braces are a hash tag: a script needs all its keys on one node of a cluster.
    session = f"{prefix}:{{{session_id}}}:".encode()
    return session + b"session", session + b"tokens"


def damaged(session_id: str, what: str) -> None:
    """Count and log that ``what`` of a stored session is not what was written."""
    _damaged.add(1)
    log.warning("stored session is damaged", extra={"session": session_id, "what": what})


def _whole(
    session: SessionStart, writer: Writer, generated: Generated
) -> tuple[str | bytes | int, ...]:
    """Return a whole session as arguments of ``begin`` and ``put``."""
    if not session.prompt:
        raise ValueError("a session needs a prompt of at least one token")
    return (
        *(writer.epoch, writer.writer_id, _proof(session.claim)),
        *(session.model, session.request, len(session.prompt)),
        pack(session.prompt) + pack_generated(generated.token_ids, generated.unchecked),
    )


def _proof(claim: Claim) -> bytes:
    """Return the hash to store. Reading the store or its traffic doesn't suffice to resume an
    answer, and neither does the resume token without its owner's identity."""
    owner = hashlib.sha256(claim.owner.encode()).digest()
    return hashlib.sha256(owner + claim.resume_token).digest()
