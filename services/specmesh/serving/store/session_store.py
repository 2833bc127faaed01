"""What must outlive a pod: each session's request and committed tokens, in Redis.

A session is written by one orchestrator at a time, under an epoch that its client chooses: each
stream that the client opens has a higher one than those before. Every write names its epoch and its
writer, a random id, and changes nothing if the session has moved on, so an orchestrator that lost
its session (to a pause, a partition, an impatient client) cannot write into its successor's answer.
Since the client counts, no loss of the store's state can make an epoch occur twice; only who has
lost count, as after a start whose answer was lost, leaves the choice to the store.
``lua/sessions.lua`` holds the transitions.

Replication in Redis is asynchronous and its disk may lag, so after a failover or a restart the last
commits, or the session, can be gone. The writer, which still has the tokens, then gets
StoreConflict or SessionNotFound and puts the whole session again. So it does where something has
damaged what is stored; a client whose writer is gone goes on from what it has itself.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Collection, Sequence
from importlib.resources import files
from typing import Any, Self

from redis.asyncio import Redis

from specmesh.serving.conventions import DAMAGED
from specmesh.serving.settings import DEFAULT_PREFIX, RedisTls
from specmesh.serving.store.redis_client import connect
from specmesh.serving.store.redis_store import RedisStore
from specmesh.serving.store.redis_url import address_of
from specmesh.serving.store.stored_session import (
    TOKEN_BYTES,
    Claim,
    Generated,
    SessionIdTaken,
    SessionNotFound,
    SessionStart,
    StaleEpoch,
    StoreConflict,
    StoredSession,
    StoredSessionCancelled,
    Writer,
    pack,
    pack_generated,
    read_generated,
    unpack,
)

log = logging.getLogger(__name__)

_damaged = DAMAGED.instrument()
_SCRIPT = files("specmesh.serving.store").joinpath("lua", "sessions.lua")


class SessionStore(RedisStore):
    """The sessions of one mesh in one Redis.

    A call that raised StoreUnavailable may be repeated. Invariant: a call that timed out may run
    late, even after others, but never undoes what they wrote.
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
        self._script = client.register_script(_SCRIPT.read_text("utf-8"))
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

        Every key begins with ``prefix``, which keeps meshes apart. A session expires ``ttl_s``
        after its last write, one that was finished or cancelled after ``finished_ttl_s``.
        """
        return cls(
            connect(url, tls),
            address=address_of(url),
            prefix=prefix,
            timeout_s=timeout_s,
            ttl_s=ttl_s,
            finished_ttl_s=finished_ttl_s,
        )

    async def begin(self, session: SessionStart, writer: Writer, generated: Generated) -> bool:
        """Store a new session, and tell whether there was none: nothing changes if it is stored.

        Raises SessionIdTaken if what is stored is another's, or another session; ValueError for an
        empty prompt.
        """
        begun, *damage = await self._run(
            session.session_id, "begin", self._ttl_s, *_whole(session, writer, generated)
        )
        if damage:
            damaged(session.session_id, damage[0].decode())
        return bool(begun)

    async def put(self, session: SessionStart, writer: Writer, generated: Generated) -> None:
        """Store a whole session, in place of what is stored under earlier epochs.

        If ``writer`` has stored it before, with these tokens or more of them, nothing changes.
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

        ``unchecked`` are the indices in ``token_ids`` of those that the target did not verify;
        ``first_index`` is the number of generated tokens before them. Tokens that are stored
        already are passed over, so an append may be repeated, or begin earlier than the last one
        ended. Raises StaleEpoch; StoredSessionCancelled; SessionNotFound; StoreConflict if the
        tokens would leave a gap or differ from those stored, or if the session is at an earlier
        epoch.
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
        """Let the session expire soon: the answer is complete with ``num_generated`` tokens, for
        the reason ``why``, which means nothing to the store.

        Raises SessionNotFound, StaleEpoch, StoredSessionCancelled, or StoreConflict, also if the
        store has another number of tokens.
        """
        await self._run(
            *(session_id, "finish", self._finished_ttl_s, writer.epoch, writer.writer_id),
            *(num_generated, why),
        )

    async def cancel(self, claim: Claim) -> None:
        """Let nobody write or take the session any more, and let it expire soon; nothing changes if
        it has ended. Raises SessionNotFound."""
        await self._run(claim.session_id, "cancel", self._finished_ttl_s, _proof(claim))

    async def read(self, claim: Claim) -> StoredSession:
        """Return the session as it stands, which keeps it no longer. Raises SessionNotFound."""
        epoch, model, request, ended, ttl_ms, num_prompt_tokens, tokens = await self._run(
            claim.session_id, "read", self._ttl_s, _proof(claim)
        )
        prompt_bytes = num_prompt_tokens * TOKEN_BYTES
        session = SessionStart(claim, model.decode(), request, unpack(tokens[:prompt_bytes]))
        generated = read_generated(tokens[prompt_bytes:])
        return StoredSession(session, epoch, generated, ended.decode(), ttl_ms / 1e3)

    async def take(
        self,
        claim: Claim,
        epoch: int | None,
        writer_id: str,
        received: Generated,
        *,
        exactly: bool = False,
    ) -> tuple[Writer, Generated]:
        """Let ``writer_id`` write the session from here on, and no writer of an earlier epoch.

        Returns the writer, and the tokens to continue from: those stored if they begin with
        ``received``, which the client has, else ``received``, which then replaces them; with
        ``exactly`` it does in any case. Raises SessionNotFound, StoredSessionCancelled, or
        StaleEpoch if the session is at ``epoch`` or a later one. Without an epoch, for a client
        that has lost count, the writer gets the next one; such a call that runs late takes the
        session from whoever has it by then.
        """
        taken_epoch, generated = await self._run(
            *(claim.session_id, "take", self._ttl_s, _proof(claim)),
            *("" if epoch is None else epoch, writer_id),
            pack_generated(received.token_ids, received.unchecked),
            int(exactly),
        )
        return Writer(taken_epoch, writer_id), read_generated(generated)

    async def read_prefix(self, session_id: str, length: int) -> tuple[int, ...]:
        """Return the first ``length`` (at least 1) tokens, prompt and committed ones.

        Fewer if fewer are committed. They may differ from those the caller means, since a client
        may continue from tokens of its own. Raises SessionNotFound.
        """
        if length < 1:
            raise ValueError(f"length must be at least 1: {length}")
        key = self._keys(session_id)[1]
        tokens = await self._answer(
            "read_prefix", self._client.getrange(key, 0, length * TOKEN_BYTES - 1)
        )
        if not tokens:
            raise SessionNotFound(f"no session {session_id!r}")
        return read_generated(tokens).token_ids

    async def _run(
        self, session_id: str, transition: str, ttl_s: int, *args: str | bytes | int
    ) -> list[Any]:
        """Run a transition of the script and return what follows its status."""
        reply: list[Any] = await self._answer(
            transition, self._script(keys=self._keys(session_id), args=[transition, ttl_s, *args])
        )
        match reply:
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
        return reply[1:]

    def _keys(self, session_id: str) -> list[str]:
        # The braces are a hash tag: a cluster keeps these keys on one node, as a script needs.
        return [f"{self._prefix}:{{{session_id}}}:{name}" for name in ("session", "tokens")]


def damaged(session_id: str, what: str) -> None:
    """Count and log that a stored session is not what was written: ``what`` of it."""
    _damaged.add(1)
    log.warning("stored session is damaged", extra={"session": session_id, "what": what})


def _whole(
    session: SessionStart, writer: Writer, generated: Generated
) -> tuple[str | bytes | int, ...]:
    """A session as ``begin`` and ``put`` store it."""
    if not session.prompt:
        raise ValueError("a session needs a prompt of at least one token")
    return (
        *(writer.epoch, writer.writer_id, _proof(session.claim)),
        *(session.model, session.request, len(session.prompt)),
        pack(session.prompt) + pack_generated(generated.token_ids, generated.unchecked),
    )


def _proof(claim: Claim) -> bytes:
    """The hash that is stored: nobody who reads the store, or its traffic, can resume an answer,
    and nobody but its owner, whatever else he knows."""
    owner = hashlib.sha256(claim.owner.encode()).digest()
    return hashlib.sha256(owner + claim.resume_token).digest()
