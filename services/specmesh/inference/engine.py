"""One thread that runs the forwards; the asyncio server feeds it.

A forward blocks, so it must not run on the event loop; and two forwards at once would only
fight over the same cores. Jobs are generators: what they yield reaches the caller as it
comes. A cancelled job is closed between two items, or within a forward where the model can
be interrupted; its call ends when it has really stopped.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import aclosing, closing
from typing import Any, Generic, TypeVar

from specmesh.inference.model import Cancellation, Interrupted
from specmesh.serving.errors import ResourceExhausted

T = TypeVar("T")
Work = Callable[["Job[T]"], Generator[T, None, None]]


class Job(Generic[T]):
    """What a running job may ask: was it cancelled, and how long did it wait."""

    def __init__(self, work: Work[T]) -> None:
        self._work = work
        self._loop = asyncio.get_running_loop()
        self._items: asyncio.Queue[T | BaseException | None] = asyncio.Queue()
        self._ended = False
        self.cancellation = Cancellation()
        self.queue_ms = 0.0

    def cancel(self) -> None:
        """Ask the job to stop; what it yields from here on is for nobody."""
        self.cancellation.set()

    def run(self) -> None:
        """Run to the end on the engine's thread; errors travel to the caller."""
        self.queue_ms = (time.perf_counter() - self.cancellation.arrived_s) * 1e3
        end: BaseException | None = None
        try:
            with closing(self._work(self)) as items:
                for item in items:
                    if self.cancellation.is_set():
                        break
                    self._deliver(item)
        except Interrupted as interruption:
            end = None if self.cancellation.is_set() else interruption
        except BaseException as error:  # the caller decides
            end = error
        self._deliver(end)

    def _deliver(self, item: T | BaseException | None) -> None:
        try:
            self._loop.call_soon_threadsafe(self._items.put_nowait, item)
        except RuntimeError:  # the loop is gone, and with it whoever waited
            self.cancel()

    async def next(self) -> T | None:
        """The next item, or None at the end; raises what the job raised."""
        item = await self._items.get()
        if item is None or isinstance(item, BaseException):
            self._ended = True
        if isinstance(item, BaseException):
            raise item
        return item

    async def stopped(self) -> None:
        """Return once the started job has left the engine's thread.

        However often the caller is cancelled meanwhile: who returned earlier would tell that
        the engine is free while it is not.
        """
        cancelled: asyncio.CancelledError | None = None
        while not self._ended:
            try:
                item = await self._items.get()
            except asyncio.CancelledError as error:
                cancelled = error
            else:
                self._ended = item is None or isinstance(item, BaseException)
        if cancelled is not None:
            raise cancelled


class Engine:
    """Runs jobs one after the other, first come first served.

    Raises ``ResourceExhausted`` at once when ``max_queue`` jobs wait already.
    """

    def __init__(self, max_queue: int) -> None:
        self._waiting: deque[Job[Any]] = deque()
        self._lock = threading.Lock()
        # One True for each job that was ever queued, withdrawn ones too; False to stop.
        self._signals: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._max_queue = max_queue
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    @property
    def queue_depth(self) -> int:
        """How many jobs wait."""
        return len(self._waiting)

    async def stream(self, work: Work[T]) -> AsyncGenerator[T, None]:
        """Run ``work`` and yield its items.

        Closing the iterator cancels the job, and returns once it has stopped: at once if it
        had not been started.
        """
        if self.queue_depth >= self._max_queue:
            raise ResourceExhausted(
                "QUEUE_FULL", f"{self._max_queue} calls wait already", retry_after_s=0.05
            )
        job = Job(work)
        with self._lock:
            self._waiting.append(job)
        self._signals.put(True)
        try:
            while (item := await job.next()) is not None:
                yield item
        finally:
            job.cancel()
            if not self._withdraw(job):
                await job.stopped()

    async def run(self, work: Callable[[Job[T]], T]) -> T:
        """Run ``work`` for its one result."""
        results: list[T] = []

        def once(job: Job[T]) -> Generator[T, None, None]:
            results.append(work(job))
            yield from ()  # the end alone is told: one wake-up of the loop, not two

        async with aclosing(self.stream(once)) as items:
            async for _ in items:
                pass
        return results[0]

    def stop(self) -> None:
        """End the thread after the jobs that came before; cancelled ones do not run."""
        self._signals.put(False)
        self._thread.join()

    def _withdraw(self, job: Job[Any]) -> bool:
        """Take ``job`` off the queue; False if it is not there (any more)."""
        with self._lock:
            try:
                self._waiting.remove(job)
            except ValueError:
                return False
        return True

    def _run(self) -> None:
        while self._signals.get():
            with self._lock:
                job = self._waiting.popleft() if self._waiting else None
            if job is not None:
                job.run()
