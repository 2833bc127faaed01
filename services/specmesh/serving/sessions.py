"""What must outlive a pod: each session's request, committed tokens and lease, in Redis.

A session is held by one orchestrator at a time, its owner, under an epoch that each
take-over raises. Every write names the writer's epoch and changes nothing if the session
has moved on, so an owner that lost its session (to a pause, a partition, an impatient
client) cannot write into its successor's answer. ``lua/sessions.lua`` holds the
transitions.

    SessionError
      SessionNotFound    no such session, or it expired
      StaleEpoch         somebody else has taken it
      SessionHeld        its owner's lease still runs
      StoreConflict      the tokens do not continue those stored
      StoreUnavailable   no answer; whether the command ran is unknown

Replication in Redis is asynchronous and its disk may lag, so after a failover or a
restart the last commits, or the session, can be gone. The owner, who still has the
tokens, then meets StoreConflict and appends them again from index 0.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Collection, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Self

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

TOKEN_BYTES = 4
UNCHECKED = 1 << 31
"""This bit of a stored token says that the target did not check it. No vocabulary reaches it."""


class SessionError(Exception):
    """Anything that the session store refuses or cannot do."""


class SessionNotFound(SessionError):
    """There is no such session, or it expired."""


class StaleEpoch(SessionError):
    """The session stands at another epoch, ``current_epoch``: somebody else has taken it."""

    def __init__(self, session_id: str, current_epoch: int) -> None:
        super().__init__(f"session {session_id!r} is at epoch {current_epoch}")
        self.current_epoch = current_epoch


class SessionHeld(SessionError):
    """``owner`` holds the session; its lease runs ``remaining_ms`` more unless renewed."""

    def __init__(self, session_id: str, owner: str, remaining_ms: int) -> None:
        super().__init__(f"session {session_id!r} is held by {owner!r} for {remaining_ms} ms")
        self.owner = owner
        self.remaining_ms = remaining_ms


class StoreConflict(SessionError):
    """What is to be written does not fit what is stored: a gap, or other tokens."""


class StoreUnavailable(SessionError):
    """Redis did not answer in time or refused to work; the command may have run."""


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """A session as its new owner finds it.

    ``token_ids`` are the prompt and the committed tokens; ``unchecked`` the places among the
    committed ones, from 0, of those that the target did not check; ``request`` is what
    ``create`` was given.
    """

    session_id: str
    epoch: int
    request: bytes
    num_prompt_tokens: int
    token_ids: tuple[int, ...]
    unchecked: frozenset[int]
    finished: bool


class SessionStore:
    """The sessions in one Redis.

    Every call answers or raises within ``timeout_s``; none is retried here. Any of them
    may raise StoreUnavailable, and the next call simply tries anew. ``create``,
    ``append``, ``renew`` and ``finish`` may be repeated after it: a second run changes
    nothing more. A ``take`` that ran unheard makes its repeat stale, and the session is
    free again once the lease it started runs out.

    Bound to the event loop it is first used on.
    """

    def __init__(self, client: Redis, *, timeout_s: float, ttl_s: int, lease_ms: int) -> None:
        self._client = client
        self._timeout_s = timeout_s
        self._ttl_s = ttl_s
        self._lease_ms = lease_ms
        self._script = client.register_script(
            files("specmesh.serving").joinpath("lua/sessions.lua").read_text("utf-8")
        )

    @classmethod
    def from_url(
        cls, url: str, *, timeout_s: float = 0.2, ttl_s: int = 3600, lease_ms: int = 3000
    ) -> Self:
        """Make a store on ``redis://``, ``rediss://`` or ``unix://``; connects when used.

        A session expires ``ttl_s`` after its last write, its lease after ``lease_ms``.
        """
        pool: BlockingConnectionPool = BlockingConnectionPool.from_url(
            url,
            # A command whose answer was lost may have run: only the caller can tell
            # whether to repeat it.
            retry=Retry(NoBackoff(), 0),
            # One deadline over the whole call, ours, instead of one for each of its steps.
            timeout=None,
            socket_timeout=None,
            socket_connect_timeout=None,
            # Under RESP3 redis-py hands out pooled connections that the server has closed,
            # and after a restart each of them would fail one call.
            protocol=2,
        )
        return cls(Redis.from_pool(pool), timeout_s=timeout_s, ttl_s=ttl_s, lease_ms=lease_ms)

    async def create(
        self, session_id: str, *, owner: str, request: bytes, prompt: Sequence[int]
    ) -> int:
        """Store a new session, held by ``owner``, and return its epoch, 1.

        Raises StoreConflict if another session has this id, ValueError for an empty prompt.
        """
        if not prompt:
            raise ValueError("a session needs a prompt of at least one token")
        (epoch,) = await self._run(session_id, "create", owner, request, _pack(prompt))
        return int(epoch)

    async def append(
        self,
        session_id: str,
        *,
        epoch: int,
        first_index: int,
        token_ids: Sequence[int],
        unchecked: Collection[int] = (),
    ) -> None:
        """Commit generated tokens and renew the lease.

        ``unchecked`` are the places in ``token_ids`` of those that the target did not check;
        ``first_index`` counts the generated tokens before them. Tokens already stored in
        their place are passed over, so an append may be repeated, or begin earlier than
        the last one ended. Raises SessionNotFound, StaleEpoch, or StoreConflict if they
        would leave a gap, differ from those stored, or carry on a finished session.
        """
        if first_index < 0:
            raise ValueError(f"first_index must not be negative: {first_index}")
        marked = [
            token | UNCHECKED if place in unchecked else token
            for place, token in enumerate(token_ids)
        ]
        await self._run(session_id, "append", epoch, first_index, _pack(marked))

    async def renew(self, session_id: str, *, epoch: int) -> None:
        """Start the lease anew. Raises SessionNotFound or StaleEpoch."""
        await self._run(session_id, "renew", epoch)

    async def take(self, session_id: str, *, owner: str, epoch: int | None) -> SessionRecord:
        """Make ``owner`` the session's holder under the next epoch, fencing off the last.

        Whoever knows the present ``epoch`` may take the session at once (StaleEpoch if it
        has changed); without one it must not be held (SessionHeld). Of several takers
        with one epoch exactly one succeeds. Raises SessionNotFound.
        """
        witnessed = "" if epoch is None else epoch
        next_epoch, request, num_prompt_tokens, finished, tokens = await self._run(
            session_id, "take", owner, witnessed
        )
        marked = _unpack(tokens)
        generated = marked[int(num_prompt_tokens) :]
        return SessionRecord(
            session_id=session_id,
            epoch=int(next_epoch),
            request=request,
            num_prompt_tokens=int(num_prompt_tokens),
            token_ids=_unmarked(marked),
            unchecked=frozenset(n for n, token in enumerate(generated) if token & UNCHECKED),
            finished=bool(finished),
        )

    async def finish(self, session_id: str, *, epoch: int) -> None:
        """Mark the answer complete and release the lease; the session stays until its TTL.

        Raises SessionNotFound or StaleEpoch.
        """
        await self._run(session_id, "finish", epoch)

    async def read_prefix(self, session_id: str, length: int) -> tuple[int, ...]:
        """Return the first ``length`` (at least 1) tokens, prompt and committed ones.

        Fewer if fewer are committed. Needs no epoch, since committed tokens never change.
        Raises SessionNotFound.
        """
        if length < 1:
            raise ValueError(f"length must be at least 1: {length}")
        key = _keys(session_id)[1]
        tokens = await self._answer(self._client.getrange(key, 0, length * TOKEN_BYTES - 1))
        if not tokens:
            raise SessionNotFound(f"no session {session_id!r}")
        return _unmarked(_unpack(tokens))

    async def ping(self) -> None:
        """Return if Redis answers, else raise StoreUnavailable."""
        await self._answer(self._client.ping())

    async def aclose(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def _run(self, session_id: str, transition: str, *args: str | bytes | int) -> list[Any]:
        """Run a transition of the script and return what follows its status."""
        reply: list[Any] = await self._answer(
            self._script(
                keys=_keys(session_id), args=[transition, self._ttl_s, self._lease_ms, *args]
            )
        )
        match reply:
            case [b"not_found"]:
                raise SessionNotFound(f"no session {session_id!r}")
            case [b"stale", current_epoch]:
                raise StaleEpoch(session_id, int(current_epoch))
            case [b"held", owner, remaining_ms]:
                raise SessionHeld(session_id, owner.decode(), remaining_ms)
            case [b"conflict", reason]:
                raise StoreConflict(f"session {session_id!r}: {reason.decode()}")
        return reply[1:]

    async def _answer(self, command: Awaitable[Any]) -> Any:
        """Await a command's answer, not longer than the deadline."""
        try:
            async with asyncio.timeout(self._timeout_s):
                return await command
        except TimeoutError as error:
            raise StoreUnavailable(f"no answer from Redis in {self._timeout_s} s") from error
        except (RedisError, OSError) as error:
            raise StoreUnavailable(f"Redis: {error}") from error


def _keys(session_id: str) -> list[str]:
    # The braces are a hash tag: a cluster keeps these keys on one node, as a script needs.
    return [f"specmesh:{{{session_id}}}:{name}" for name in ("session", "tokens", "lease")]


def _pack(token_ids: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(token_ids)}I", *token_ids)


def _unmarked(tokens: Sequence[int]) -> tuple[int, ...]:
    return tuple(token & ~UNCHECKED for token in tokens)


def _unpack(tokens: bytes) -> tuple[int, ...]:
    return struct.unpack(f"<{len(tokens) // TOKEN_BYTES}I", tokens)
