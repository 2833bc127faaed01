"""Which replicas hold which prefixes, in Redis, for all orchestrators of a mesh.

A prefix is known by the chained digests of its blocks (``decoding/prefix.py``), and so by its salt
as well: who may not share a cached prefix doesn't find it here either. A replica is known by its
identity, which no other process ever has, so whoever finds one that has died finds nobody. Each
entry is a lease: nobody takes back what a replica has evicted since.

All of this is hints. Nothing is lost with them, and nothing that depends on one may fail without
it. One that can't be read is ignored, whatever it holds.
"""

from __future__ import annotations

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

LEASE_SECONDS = 300.0
"""About as long as the next turn of a conversation takes to come. A replica that is busier forgets
earlier, which costs whoever believes the entry nothing that he would not have spent without it."""
MAX_REPLICAS = 16
"""Kept of each prefix, the latest: enough to find one that is free."""
_TAG_DIGITS = 16
"""Of a hash of 32: where two tags are the same, nothing but the node is."""

_SCRIPT = files("specmesh.serving.store").joinpath("lua", "prefixes.lua")


@dataclass(frozen=True, slots=True)
class Beginnings:
    """Some beginnings of one prefix, the shortest first, by their digests; one at least.
    ``first_block`` is the digest of the first block of all of them."""

    first_block: bytes
    digests: tuple[bytes, ...]


class PrefixDirectory(RedisStore):
    """The holders of prefixes of one mesh in one Redis. A call may be repeated, or run late."""

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
        self._script = client.register_script(_SCRIPT.read_text("utf-8"))
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
        """Make a directory on a URL (see ``redis_client.connect``), with connections of its own, so
        that no session waits for one. Every key begins with ``prefix``; an entry goes ``lease_s``
        after it was last noted."""
        return cls(
            connect(url, tls),
            address=address_of(url),
            prefix=prefix,
            timeout_s=timeout_s,
            lease_s=lease_s,
        )

    async def note(self, beginnings: Beginnings, holds: Mapping[str, int]) -> None:
        """Note that each replica holds so many of ``beginnings``, from the shortest on."""
        leading = [part for pair in holds.items() for part in pair]
        await self._run("note", beginnings, *leading)

    async def find(self, beginnings: Beginnings) -> dict[str, int]:
        """How many of ``beginnings``, from the shortest on, each replica is believed to hold, of
        those that hold any; of many, those that hold most."""
        found = await self._run("find", beginnings)
        return dict(_readable(zip(found[::2], found[1::2], strict=True)))

    async def _run(self, what: str, beginnings: Beginnings, *args: str | int) -> Any:
        bounds = (self._lease_ms, MAX_REPLICAS)
        script = self._script(keys=self._keys(beginnings), args=[what, *bounds, *args])
        return await self._answer(f"{what}_prefix", script)

    def _keys(self, beginnings: Beginnings) -> list[str]:
        # The braces are a hash tag: a cluster keeps all that begins with one block on one node, as
        # a script needs.
        tag = beginnings.first_block.hex()[:_TAG_DIGITS]
        return [f"{self._prefix}:{{{tag}}}:{each.hex()}:holders" for each in beginnings.digests]


def _readable(found: Iterable[tuple[bytes, int]]) -> Iterator[tuple[str, int]]:
    """Yield the hints that name a replica."""
    for replica, number in found:
        with suppress(UnicodeDecodeError):
            yield replica.decode(), number
