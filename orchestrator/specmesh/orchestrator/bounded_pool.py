"""Threads for work that would hold up the event loop; what can't wait for them is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from specmesh.serving.errors import ResourceExhausted

RETRY_SECONDS = 1.0

T = TypeVar("T")


class BoundedPool:
    """Does ``max_at_work`` things at once and lets ``max_waiting`` more wait.

    ``what`` completes "16 ..." for whom it refuses.
    """

    def __init__(self, name: str, max_at_work: int, max_waiting: int, what: str) -> None:
        self._threads = ThreadPoolExecutor(max_at_work, thread_name_prefix=name)
        self._most = max_at_work + max_waiting
        self._what = what
        self._under_way: set[Future[Any]] = set()

    async def run(self, work: Callable[..., T], *arguments: Any) -> T:
        """What ``work`` returns or raises; ``ResourceExhausted`` with reason OVERLOADED if too much
        waits."""
        if len(self._under_way) >= self._most:
            raise ResourceExhausted(
                "OVERLOADED",
                f"{len(self._under_way)} {self._what} already",
                retry_after_s=RETRY_SECONDS,
            )
        # Work whose client has gone counts until its thread has finished with it.
        future = self._threads.submit(work, *arguments)
        self._under_way.add(future)
        loop = asyncio.get_running_loop()
        future.add_done_callback(
            lambda done: loop.call_soon_threadsafe(self._under_way.discard, done)
        )
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Drop what waits, and return once what is at work has ended."""
        self._threads.shutdown(cancel_futures=True)
