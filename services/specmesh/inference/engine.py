"""One thread that runs the forwards; the asyncio server feeds it.

A forward blocks, so it must not run on the event loop; and two forwards at once would only
fight over the same cores. Jobs are generators: what they yield reaches the caller as it
comes, and between two items a cancelled job is closed.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import aclosing
from typing import Generic, TypeVar

from specmesh.serving.errors import ResourceExhausted

T = TypeVar("T")
Work = Callable[["Job[T]"], Generator[T, None, None]]


class Job(Generic[T]):
    """What a running job may ask: was it cancelled, and how long did it wait."""

    def __init__(self, work: Work[T]) -> None:
        self._work = work
        self._loop = asyncio.get_running_loop()
        self._items: asyncio.Queue[T | BaseException | None] = asyncio.Queue()
        self._arrived = time.perf_counter()
        self.cancelled = False
        self.queue_ms = 0.0

    def run(self) -> None:
        """Run to the end on the engine's thread; errors travel to the caller."""
        self.queue_ms = (time.perf_counter() - self._arrived) * 1e3
        if self.cancelled:
            return
        end: BaseException | None = None
        try:
            items = self._work(self)
            for item in items:
                if self.cancelled:
                    items.close()
                    break
                self._deliver(item)
        except BaseException as error:  # the caller decides
            end = error
        self._deliver(end)

    def _deliver(self, item: T | BaseException | None) -> None:
        try:
            self._loop.call_soon_threadsafe(self._items.put_nowait, item)
        except RuntimeError:  # the loop is gone, and with it whoever waited
            self.cancelled = True

    async def next(self) -> T | None:
        """The next item, or None at the end; raises what the job raised."""
        item = await self._items.get()
        if isinstance(item, BaseException):
            raise item
        return item


class Engine:
    """Runs jobs one after the other, first come first served.

    Raises ``ResourceExhausted`` at once when ``max_queue`` jobs wait already.
    """

    def __init__(self, max_queue: int) -> None:
        self._jobs: queue.SimpleQueue[Job[object] | None] = queue.SimpleQueue()
        self._max_queue = max_queue
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    @property
    def queue_depth(self) -> int:
        """How many jobs wait."""
        return self._jobs.qsize()

    async def stream(self, work: Work[T]) -> AsyncGenerator[T, None]:
        """Run ``work`` and yield its items; closing the iterator cancels the job."""
        if self.queue_depth >= self._max_queue:
            raise ResourceExhausted(
                "QUEUE_FULL", f"{self._max_queue} calls wait already", retry_after_s=0.05
            )
        job = Job(work)
        self._jobs.put(job)  # type: ignore[arg-type]
        try:
            while (item := await job.next()) is not None:
                yield item
        finally:
            job.cancelled = True

    async def run(self, work: Callable[[Job[T]], T]) -> T:
        """Run ``work`` for its one result."""

        def once(job: Job[T]) -> Generator[T, None, None]:
            yield work(job)

        async with aclosing(self.stream(once)) as results:
            return await anext(results)

    def stop(self) -> None:
        """End the thread after the jobs that came before; cancelled ones do not run."""
        self._jobs.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job.run()
