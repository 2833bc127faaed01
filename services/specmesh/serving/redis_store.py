"""What the stores in Redis share: the connections, one deadline over each call, one error."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from importlib.resources import files
from typing import Any

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from specmesh.serving.session import StoreUnavailable

FAULTS = (RedisError, OSError)
"""What redis-py raises where a server is away or refuses a command."""


def connect(url: str) -> Redis:
    """A client of ``redis://``, ``rediss://`` or ``unix://``; it connects when used."""
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
    return Redis.from_pool(pool)


class RedisStore:
    """Every call answers or raises StoreUnavailable within ``timeout_s``; none is repeated here.

    ``script`` names the Lua script of a store, a file of ``package``. Bound to the event loop it
    is first used on.
    """

    def __init__(self, client: Redis, *, package: str, script: str, timeout_s: float) -> None:
        self._client = client
        self._timeout_s = timeout_s
        self._script = client.register_script(
            files(package).joinpath("lua", script).read_text("utf-8")
        )

    async def aclose(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def _answer(self, command: Awaitable[Any]) -> Any:
        """Await a command's answer, not longer than the deadline."""
        try:
            async with asyncio.timeout(self._timeout_s):
                return await command
        except TimeoutError as error:
            raise StoreUnavailable(f"no answer from Redis in {self._timeout_s} s") from error
        except FAULTS as error:
            raise StoreUnavailable(f"Redis: {error}") from error
