"""A real Redis, and replicas of the request cache on it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from redis.asyncio import Redis
from tests.serving.conftest import redis_server, start_redis

from specmesh.confidence.release import Escalation
from specmesh.confidence.request_cache import Release, RequestCache
from specmesh.confidence.request_store import RequestStore

if TYPE_CHECKING:
    from tests.serving.conftest import RedisServer

__all__ = ["redis_server", "start_redis"]

PATIENCE_S = 20
"""Fails a test instead of hanging it; never a measure of speed."""
LONG_S = 600.0
"""A window that no test sees the end of."""


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what no event tells of."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.002)


class Replica:
    """One process's request cache, with requests that may be left to wait."""

    def __init__(self, cache: RequestCache) -> None:
        self.cache = cache
        self.order: list[str] = []
        """Sessions, as they were released."""
        self._tasks: list[asyncio.Task[Release]] = []

    @property
    def shared(self) -> bool:
        """Whether requests wait in Redis at the moment."""
        return self.cache._sharing is not None

    def ask(self, session_id: str, confidence: float = -1.0) -> asyncio.Task[Release]:
        """A request that has entered the cache when this returns."""
        stack = ExitStack()
        ticket = stack.enter_context(
            self.cache.enter(Escalation(session_id, 16, b"digest", confidence))
        )
        ticket.released.add_done_callback(lambda _: self.order.append(session_id))

        async def wait() -> Release:
            with stack:
                async with asyncio.timeout(PATIENCE_S):
                    return await ticket.released

        self._tasks.append(asyncio.create_task(wait()))
        return self._tasks[-1]

    async def meet(self, *session_ids: str) -> None:
        """Make sessions known to be at work, to all replicas."""
        for session_id in session_ids:
            self.cache.see(session_id)
        await self.ask(session_ids[0], float("-inf"))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.cache.stop()


MakeReplica = Callable[..., Awaitable[Replica]]


@pytest.fixture
async def replica() -> AsyncIterator[MakeReplica]:
    """Makes replicas on the Redis at ``url``, or on none."""
    async with AsyncExitStack() as stack:

        async def make(url: str | None = None, *, max_batch: int = 32, **options: Any) -> Replica:
            timeout_s = options.pop("timeout_s", PATIENCE_S)
            store = url and RequestStore.from_url(url, max_batch=max_batch, timeout_s=timeout_s)
            cache = RequestCache(
                store or None, max_batch=max_batch, **{"window_s": LONG_S} | options
            )
            await cache.start()
            made = Replica(cache)
            stack.push_async_callback(made.close)
            return made

        yield make


@pytest.fixture
async def redis(redis_server: RedisServer) -> AsyncIterator[Redis]:
    """The shared Redis, with nothing in it."""
    async with Redis.from_url(redis_server.url) as redis:
        await redis.flushdb()
        yield redis
