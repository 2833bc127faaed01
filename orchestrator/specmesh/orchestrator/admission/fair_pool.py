"""Threads for work that would block the event loop, shared fairly among the callers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from specmesh.orchestrator.admission.fair_queue import FairQueue
from specmesh.serving import caller
from specmesh.serving.errors import ResourceExhaustedStatus

RETRY_SECONDS = 1.0

T = TypeVar("T")
Turn = asyncio.Future[None]


class FairPool:
    """Runs ``max_at_work`` jobs concurrently and lets ``max_waiting`` more wait.

    Identities take turns as in ``FairQueue``. When the queue is full, a new job replaces the last
    job of the identity with the most waiting jobs, unless the newcomer's identity would then have
    more waiting than that one. An identity may thus fill the whole queue but keeps nobody else out.
    ``what`` completes the error message "16 ... already".
    """

    def __init__(self, name: str, max_at_work: int, max_waiting: int, what: str) -> None:
        self._threads = ThreadPoolExecutor(max_at_work, thread_name_prefix=name)
        self._max_at_work = max_at_work
        self._jobs: FairQueue[Turn] = FairQueue()
        """The jobs that wait for a thread; a job is running while it has one."""
        self._max_waiting = max_waiting
        self._what = what

    async def run(self, work: Callable[..., T], *arguments: Any) -> T:
        """Return or raise what ``work`` does, in a thread.

        Raises ``ResourceExhaustedStatus`` with reason OVERLOADED if too many jobs wait."""
        identity = caller.identity()
        await self._thread(identity)
        # A job whose client has gone counts until its thread is free: threads can't be cancelled.
        future = self._threads.submit(work, *arguments)
        loop = asyncio.get_running_loop()
        future.add_done_callback(lambda _: loop.call_soon_threadsafe(self._hand_on, identity))
        return await asyncio.wrap_future(future)

    async def close(self) -> None:
        """Drop the waiting jobs, and return once the running ones have ended."""
        while self._jobs:
            self._jobs.pop()[1].cancel()
        await asyncio.to_thread(self._threads.shutdown)

    async def _thread(self, identity: str) -> None:
        """Return when ``identity`` has been given a thread."""
        jobs = self._jobs
        if jobs.num_running < self._max_at_work:
            jobs.begun(identity)
            return
        if len(jobs) >= self._max_waiting:
            self._make_room(identity)
        turn: Turn = asyncio.get_running_loop().create_future()
        jobs.append(identity, turn)
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self._hand_on(identity)  # the thread was assigned just before the cancellation
            else:
                jobs.remove(identity, turn)
            raise

    def _make_room(self, identity: str) -> None:
        if not self._jobs.is_crowded_by_others(identity):
            raise self._overloaded()
        last = self._jobs.pop_longest()
        if not last.done():  # otherwise its client has just gone
            last.set_exception(self._overloaded())

    def _hand_on(self, former: str) -> None:
        """Give the thread of ``former`` to the next identity."""
        self._jobs.ended(former)
        while self._jobs:
            identity, turn = self._jobs.pop()
            if not turn.done():
                self._jobs.begun(identity)
                turn.set_result(None)
                return

    def _overloaded(self) -> ResourceExhaustedStatus:
        return ResourceExhaustedStatus(
            "OVERLOADED",
            f"{len(self._jobs)} {self._what} already",
            retry_after_s=RETRY_SECONDS,
        )
