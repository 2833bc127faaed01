"""A request cache, with requests that may be left to wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, ExitStack
from typing import Any

import pytest

from specmesh.confidence.request_cache import Release, RequestCache

PATIENCE_S = 20
"""Fails a test instead of hanging it; never a measure of speed."""
LONG_S = 600.0
"""A window that no test sees the end of."""


class Replica:
    """One process's request cache."""

    def __init__(self, cache: RequestCache) -> None:
        self.cache = cache
        self.order: list[str] = []
        """Sessions, as they were released."""
        self._tasks: list[asyncio.Task[Release]] = []

    def ask(self, session_id: str, confidence: float = -1.0) -> asyncio.Task[Release]:
        """A request that has entered the cache when this returns."""
        stack = ExitStack()
        ticket = stack.enter_context(self.cache.enter(session_id, confidence))
        ticket.released.add_done_callback(lambda _: self.order.append(session_id))

        async def wait() -> Release:
            with stack:
                async with asyncio.timeout(PATIENCE_S):
                    return await ticket.released

        self._tasks.append(asyncio.create_task(wait()))
        return self._tasks[-1]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.cache.stop()


MakeReplica = Callable[..., Replica]


@pytest.fixture
async def replica() -> AsyncIterator[MakeReplica]:
    """Makes request caches."""
    async with AsyncExitStack() as stack:

        def make(**options: Any) -> Replica:
            made = Replica(RequestCache(**{"window_s": LONG_S, "max_batch": 32} | options))
            stack.push_async_callback(made.close)
            return made

        yield make
