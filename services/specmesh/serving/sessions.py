"""What must outlive a pod: each session's request and committed tokens, in Redis.

A session is written by one orchestrator at a time, under an epoch that its client chooses: each
stream that the client opens has a higher one than those before. Every write names its epoch and its
writer, a random id, and changes nothing if the session has moved on, so an orchestrator that lost
its session (to a pause, a partition, an impatient client) cannot write into its successor's answer.
Since the client counts, no loss of the store's state can make an epoch occur twice.
``lua/sessions.lua`` holds the transitions.

Replication in Redis is asynchronous and its disk may lag, so after a failover or a restart the last
commits, or the session, can be gone. The writer, which still has the tokens, then gets
StoreConflict or SessionNotFound and puts the whole session again.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Collection, Sequence
from importlib.resources import files
from typing import Any, Self

from redis.asyncio import Redis
from redis.exceptions import RedisError

from specmesh.serving.patience import StorePatience
from specmesh.serving.redis_client import connect
from specmesh.serving.session import (
    TOKEN_BYTES,
    Generated,
    Session,
    SessionNotFound,
    StaleEpoch,
    StoreConflict,
    StoreUnavailable,
    Writer,
    pack,
    pack_generated,
    read_generated,
    unpack,
)
from specmesh.serving.settings import DEFAULT_PREFIX

_SCRIPT = files("specmesh.serving").joinpath("lua", "sessions.lua")


class SessionStore:
    """The sessions of one mesh in one Redis.

    Every call answers or raises StoreUnavailable within ``timeout_s``, and may be repeated then.
    Invariant: a call that timed out may run late, even after others, but never undoes what they
    wrote. Bound to the event loop that it is first used on.
    """

    def __init__(
        self,
        client: Redis,
        *,
        prefix: str = DEFAULT_PREFIX,
        timeout_s: float = 1.0,
        ttl_s: int = 600,
        finished_ttl_s: int = 60,
    ) -> None:
        self._client = client
        self._script = client.register_script(_SCRIPT.read_text("utf-8"))
        self._timeout_s = timeout_s
        self._prefix = prefix
        self._ttl_s = ttl_s
        self._finished_ttl_s = finished_ttl_s
        self.patience = StorePatience()
        """How long it is worth waiting for the store."""

    @classmethod
    def from_url(
        cls,
        url: str,
        *,
        prefix: str = DEFAULT_PREFIX,
        timeout_s: float = 1.0,
        ttl_s: int = 600,
        finished_ttl_s: int = 60,
    ) -> Self:
        """Make a store on a URL (see ``redis_client.connect``).

        Every key begins with ``prefix``, which keeps meshes apart. A session expires ``ttl_s``
        after its last write, a finished one after ``finished_ttl_s``.
        """
        return cls(
            connect(url),
            prefix=prefix,
            timeout_s=timeout_s,
            ttl_s=ttl_s,
            finished_ttl_s=finished_ttl_s,
        )

    async def aclose(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def put(self, session: Session, writer: Writer, generated: Generated) -> None:
        """Store a whole session, in place of what is stored under earlier epochs.

        If ``writer`` has stored it before, with these tokens or more of them, nothing changes.
        Raises StaleEpoch, ValueError for an empty prompt.
        """
        if not session.prompt:
            raise ValueError("a session needs a prompt of at least one token")
        await self._run(
            session.session_id,
            "put",
            self._ttl_s,
            writer.epoch,
            writer.writer_id,
            _hash(session.resume_token),
            session.model,
            session.request,
            len(session.prompt),
            pack(session.prompt) + pack_generated(generated.token_ids, generated.unchecked),
        )

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
        ended. Raises StaleEpoch; SessionNotFound; StoreConflict if the tokens would leave a gap or
        differ from those stored, or if the session is at an earlier epoch.
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

    async def finish(self, session_id: str, writer: Writer) -> None:
        """Let the session expire soon: the answer is complete.

        Raises SessionNotFound, StaleEpoch or StoreConflict.
        """
        await self._run(session_id, "finish", self._finished_ttl_s, writer.epoch, writer.writer_id)

    async def read(self, session_id: str, resume_token: bytes) -> Session:
        """Return what was fixed when the answer began. Raises SessionNotFound."""
        secret = _hash(resume_token)
        model, request, prompt = await self._run(session_id, "read", self._ttl_s, secret)
        return Session(session_id, resume_token, model.decode(), request, unpack(prompt))

    async def take(
        self, session_id: str, resume_token: bytes, writer: Writer, received: Generated
    ) -> Generated:
        """Let ``writer`` write the session from here on, and no writer of an earlier epoch.

        Returns the tokens to continue from: those stored if they begin with ``received``, which the
        client has, else ``received``, which then replaces them. Raises SessionNotFound, or
        StaleEpoch if the session is at the writer's epoch or a later one.
        """
        (generated,) = await self._run(
            session_id,
            "take",
            self._ttl_s,
            _hash(resume_token),
            writer.epoch,
            writer.writer_id,
            pack_generated(received.token_ids, received.unchecked),
        )
        return read_generated(generated)

    async def read_prefix(self, session_id: str, length: int) -> tuple[int, ...]:
        """Return the first ``length`` (at least 1) tokens, prompt and committed ones.

        Fewer if fewer are committed. They may differ from those the caller means, since a client
        may continue from tokens of its own. Raises SessionNotFound.
        """
        if length < 1:
            raise ValueError(f"length must be at least 1: {length}")
        key = self._keys(session_id)[1]
        tokens = await self._answer(self._client.getrange(key, 0, length * TOKEN_BYTES - 1))
        if not tokens:
            raise SessionNotFound(f"no session {session_id!r}")
        return read_generated(tokens).token_ids

    async def ping(self) -> None:
        """Return if Redis answers, else raise StoreUnavailable."""
        await self._answer(self._client.ping())

    async def _run(
        self, session_id: str, transition: str, ttl_s: int, *args: str | bytes | int
    ) -> list[Any]:
        """Run a transition of the script and return what follows its status."""
        reply: list[Any] = await self._answer(
            self._script(keys=self._keys(session_id), args=[transition, ttl_s, *args])
        )
        match reply:
            case [b"not_found"]:
                raise SessionNotFound(f"no session {session_id!r}")
            case [b"stale", current_epoch]:
                raise StaleEpoch(session_id, current_epoch)
            case [b"conflict", reason]:
                raise StoreConflict(f"session {session_id!r}: {reason.decode()}")
        return reply[1:]

    async def _answer(self, command: Awaitable[Any]) -> Any:
        """Await a command's answer within the deadline, and learn how long the store takes."""
        now = asyncio.get_running_loop().time
        began = now()
        try:
            async with asyncio.timeout(self._timeout_s):
                answer = await command
        except TimeoutError as error:
            self.patience.failed()
            raise StoreUnavailable(f"no answer from Redis in {self._timeout_s} s") from error
        except (RedisError, OSError) as error:
            self.patience.failed()
            raise StoreUnavailable(f"Redis: {error}") from error
        self.patience.answered(now() - began)
        return answer

    def _keys(self, session_id: str) -> list[str]:
        # The braces are a hash tag: a cluster keeps these keys on one node, as a script needs.
        return [f"{self._prefix}:{{{session_id}}}:{name}" for name in ("session", "tokens")]


def _hash(resume_token: bytes) -> bytes:
    """The hash that is stored: nobody who reads the store, or its traffic, can resume an answer."""
    return hashlib.sha256(resume_token).digest()
