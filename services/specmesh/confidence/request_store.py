"""The request cache in Redis, where requests of all replicas of the service wait together.

A replica takes turns: it sends what was added and withdrawn, and in that turn
``lua/request_cache.lua`` releases whatever is ready, of any replica. The other replicas are told on
a channel of their own. The script takes a replica for alive as long as it listens there, so entries
of one that was killed no longer count.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Self

from redis.asyncio import Redis
from redis.asyncio.client import PubSub

from specmesh.confidence.release import LIVE_S, Waiting
from specmesh.serving.redis_store import FAULTS, RedisStore, connect
from specmesh.serving.session import StoreUnavailable
from specmesh.serving.settings import DEFAULT_PREFIX

GRACE_S = 0.1
"""A request overdue for this many seconds belongs to a replica that is lost: one that is alive has
taken it back by then."""

# The braces are a hash tag: a cluster keeps these keys on one node, as a script needs.
_KEYS = [f"{{request-cache}}:{name}" for name in ("waiting", "entries", "sessions")]


@dataclass(frozen=True, slots=True)
class ReleasedPart:
    """This replica's part of a batch that is released."""

    batch_size: int
    numbers: tuple[int, ...]
    """The requests' numbers, the least sure first."""


@dataclass(frozen=True, slots=True)
class Turn:
    """The result of a turn."""

    parts: tuple[ReleasedPart, ...]
    """This replica's parts of the batches that were released; they may be empty."""
    due_in_s: float | None
    """Seconds until the oldest request that still waits is due; None if none waits."""


class RequestStore(RedisStore):
    """The request cache in one Redis."""

    def __init__(self, client: Redis, *, prefix: str, max_batch: int, timeout_s: float) -> None:
        super().__init__(
            client, package="specmesh.confidence", script="request_cache.lua", timeout_s=timeout_s
        )
        self.keys = [f"{prefix}:{key}" for key in _KEYS]
        self._max_batch = max_batch

    @classmethod
    def from_url(
        cls, url: str, *, prefix: str = DEFAULT_PREFIX, max_batch: int, timeout_s: float = 0.2
    ) -> Self:
        """Make a store on a URL (see ``redis_store.connect``)."""
        return cls(connect(url), prefix=prefix, max_batch=max_batch, timeout_s=timeout_s)

    @asynccontextmanager
    async def join(self) -> AsyncIterator[Membership]:
        """Take part as a replica for the length of a block. Raises ``StoreUnavailable``."""
        replica = uuid.uuid4().hex  # a new one each time: entries left from before are not its own
        pubsub = self._client.pubsub()
        try:
            await self._answer(pubsub.subscribe(f"{self.keys[0]}:{replica}"))
            await self._answer(pubsub.get_message(timeout=None))  # confirms the subscription
            yield Membership(self, replica, pubsub)
        finally:
            await pubsub.aclose()  # type: ignore[no-untyped-call]

    async def run(self, replica: str, **turn: object) -> list[Any]:
        """Run the script. Raises ``StoreUnavailable``."""
        turn |= {
            "replica": replica,
            "max_batch": self._max_batch,
            "live_ms": round(LIVE_S * 1e3),
            "grace_ms": GRACE_S * 1e3,
        }
        reply: list[Any] = await self._answer(self._script(keys=self.keys, args=[json.dumps(turn)]))
        return reply


class Membership:
    """One replica's part in the cache; made by ``RequestStore.join``."""

    def __init__(self, store: RequestStore, replica: str, pubsub: PubSub) -> None:
        self._store = store
        self._replica = replica
        self._pubsub = pubsub

    async def turn(
        self,
        now: float,
        *,
        added: Sequence[Waiting] = (),
        withdrawn: Iterable[int] = (),
        seen: Iterable[str] = (),
    ) -> Turn:
        """Send what is new, and release what is ready. Raises ``StoreUnavailable``.

        ``now`` is by the clock of the requests' ``due``; ``withdrawn`` may name requests that are
        added in this very turn, or no longer wait; ``seen`` are active sessions.
        """
        due_in_ms, *parts = await self._store.run(
            self._replica,
            added=[_entry(waiting, now) for waiting in added],
            withdrawn=[_name(number) for number in withdrawn],
            seen=list(seen),
        )
        return Turn(
            tuple(_part(fields) for fields in parts),
            max(0.0, float(due_in_ms)) / 1e3 if due_in_ms else None,
        )

    async def released_by_others(self) -> AsyncIterator[ReleasedPart]:
        """This replica's parts of other replicas' turns; raises ``StoreUnavailable`` in the end."""
        try:
            async for message in self._pubsub.listen():
                if message["type"] == "message":
                    yield _part(message["data"].split())
        except FAULTS as error:
            raise StoreUnavailable(f"Redis: {error}") from error
        raise StoreUnavailable("Redis ended the subscription")


def _entry(waiting: Waiting, now: float) -> dict[str, object]:
    escalation = waiting.escalation
    return {
        "number": _name(waiting.number),
        "confidence": repr(escalation.confidence),  # as text: JSON has no infinity
        "due_in_ms": max(0.0, waiting.due - now) * 1e3,
        "session_id": escalation.session_id,
        "prefix_length": escalation.prefix_length,
        "prefix_digest": escalation.prefix_digest.hex(),
    }


def _name(number: int) -> str:
    # Zero-padded, since equally sure requests are sorted by name.
    return f"{number:016x}"


def _part(fields: Sequence[bytes]) -> ReleasedPart:
    size, *names = fields
    return ReleasedPart(int(size), tuple(int(name, 16) for name in names))
