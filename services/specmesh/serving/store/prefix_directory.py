"""A directory in Redis of the replicas that hold a prefix, for all orchestrators of a mesh.

A prefix is identified by the chained digests of its blocks (``decoding/prefix.py``), which include
the salt: callers who may not share a cached prefix don't find it here either. A replica is
identified by an id that no other process ever has, so the entry of a replica that has died matches
no other. Each entry is a lease, since nobody removes entries that a replica has evicted.

All entries are hints: nothing is lost with them, and nothing may fail without one. Unreadable ones
are ignored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Self

from redis.asyncio import Redis

from specmesh.serving.settings import DEFAULT_PREFIX, RedisTls
from specmesh.serving.store.redis_client import connect
from specmesh.serving.store.redis_store import RedisStore
from specmesh.serving.store.redis_url import address_of
from specmesh.serving.store.script_pipeline import ScriptPipeline
from specmesh.serving.store.stored_session import StoreUnavailable

LEASE_SECONDS = 300.0
"""About the time until the next turn of a conversation. A busy replica evicts a prefix earlier; an
orchestrator that trusts the entry then loses nothing that it wouldn't lose without the entry."""
MAX_REPLICAS = 16
"""The number of replicas kept for each prefix, the latest ones: enough to find one that is free."""
_TAG_DIGITS = 16
"""The hex digits of a digest in a hash tag. Equal tags only mean the same node of a cluster."""

_SCRIPT = files("specmesh.serving.store").joinpath("lua", "prefixes.lua")


@dataclass(frozen=True, slots=True)
class Beginnings:
    """At least one beginning of a prefix, by digest, the shortest first. ``first_block`` is the
    digest of the first block, which all of them share."""

    first_block: bytes
    digests: tuple[bytes, ...]


class PrefixDirectory(RedisStore):
    """The holders of prefixes of one mesh in one Redis. Calls may be retried, or run late."""

    def __init__(
        self,
        client: Redis,
        *,
        address: str = "",
        prefix: str = DEFAULT_PREFIX,
        timeout_s: float = 1.0,
        lease_s: float = LEASE_SECONDS,
    ) -> None:
        super().__init__(client, address=address, prefix=prefix, timeout_s=timeout_s)
        script = _SCRIPT.read_text("utf-8")
        # Answers wait for searches, so these must not wait for notes.
        self._notes = ScriptPipeline(client, script, self._answer_all)
        self._searches = ScriptPipeline(client, script, self._answer_all)
        self._lease_ms = round(lease_s * 1e3)

    @classmethod
    def from_url(
        cls,
        url: str,
        *,
        tls: RedisTls | None = None,
        prefix: str = DEFAULT_PREFIX,
        timeout_s: float = 1.0,
        lease_s: float = LEASE_SECONDS,
    ) -> Self:
        """Make a directory on a URL (see ``redis_client.connect``). It has connections of its own,
        so that sessions never wait for it. Every key begins with ``prefix``; an entry expires
        ``lease_s`` after it was last noted."""
        return cls(
            connect(url, tls),
            address=address_of(url),
            prefix=prefix,
            timeout_s=timeout_s,
            lease_s=lease_s,
        )

    async def aclose(self) -> None:
        """Close all connections."""
        await self._notes.aclose()
        await self._searches.aclose()
        await super().aclose()

    async def note(self, beginnings: Beginnings, holds: Mapping[str, int]) -> None:
        """Note the number of ``beginnings``, from the shortest on, that each replica holds."""
        leading = [part for pair in holds.items() for part in pair]
        await self._run(self._notes, "note", beginnings, *leading)

    async def find(self, beginnings: Beginnings) -> dict[str, int]:
        """Return the number of ``beginnings``, from the shortest on, that each replica is believed
        to hold: at most ``MAX_REPLICAS`` replicas that hold any, preferring those that hold most.
        """
        found = await self._run(self._searches, "find", beginnings)
        return dict(_readable(zip(found[::2], found[1::2], strict=True)))

    async def _run(
        self, calls: ScriptPipeline, what: str, beginnings: Beginnings, *args: str | int
    ) -> Any:
        now = asyncio.get_running_loop().time
        purpose, began = f"{what}_prefix", now()
        bounds = (self._lease_ms, MAX_REPLICAS)
        reply = await calls.run(purpose, self._keys(beginnings), (what, *bounds, *args))
        if isinstance(reply, Exception):
            await self._broke(purpose, reply, now() - began)
            raise StoreUnavailable(f"Redis: {reply}") from reply
        return reply

    def _keys(self, beginnings: Beginnings) -> list[bytes]:
        # The braces are a hash tag: a script needs all its keys on one node of a cluster, so all
        # prefixes with the same first block share one.
        tag = beginnings.first_block.hex()[:_TAG_DIGITS]
        digests = (each.hex() for each in beginnings.digests)
        return [f"{self._prefix}:{{{tag}}}:{each}:holders".encode() for each in digests]


def _readable(found: Iterable[tuple[bytes, int]]) -> Iterator[tuple[str, int]]:
    """Yield the hints that name a replica."""
    for replica, number in found:
        with suppress(UnicodeDecodeError):
            yield replica.decode(), number
