"""Threads for work that would block the event loop, shared fairly among the callers."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from specmesh.serving import caller
from specmesh.serving.errors import ResourceExhaustedStatus

RETRY_SECONDS = 1.0

T = TypeVar("T")
Turn = asyncio.Future[None]


class FairPool:
    """Runs ``max_at_work`` jobs concurrently and lets ``max_waiting`` more wait.

    The next job is of the identity with the fewest running jobs, however many each has waiting;
    identities with equally many take turns. When the queue is full, a new job replaces the last job
    of the identity with the most waiting jobs (longest queue drop), unless the newcomer's identity
    would then have more waiting than that one. An identity may thus fill the whole queue but keeps
    nobody else out. ``what`` completes the error message "16 ... already".
    """

    def __init__(self, name: str, max_at_work: int, max_waiting: int, what: str) -> None:
        self._threads = ThreadPoolExecutor(max_at_work, thread_name_prefix=name)
        self._max_at_work = max_at_work
        self._at_work: Counter[str] = Counter()
        """Threads that each identity occupies."""
        self._max_waiting = max_waiting
        self._num_waiting = 0
        self._what = what
        self._turns: OrderedDict[str, deque[Turn]] = OrderedDict()
        """Waiting jobs by identity; of two identities with equally many running jobs, the first is
        next."""

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
        for turns in self._turns.values():
            for turn in turns:
                turn.cancel()
        await asyncio.to_thread(self._threads.shutdown)

    async def _thread(self, identity: str) -> None:
        """Return when ``identity`` has been given a thread."""
        if self._at_work.total() < self._max_at_work:
            self._at_work[identity] += 1
            return
        if self._num_waiting >= self._max_waiting:
            self._make_room(identity)
        turn: Turn = asyncio.get_running_loop().create_future()
        self._turns.setdefault(identity, deque()).append(turn)
        self._num_waiting += 1
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self._hand_on(identity)  # the thread was assigned just before the cancellation
            else:
                self._remove(identity, turn)
            raise

    def _make_room(self, identity: str) -> None:
        most, turns = max(self._turns.items(), key=lambda each: len(each[1]))
        if len(turns) <= len(self._turns.get(identity, ())) + 1:
            raise self._overloaded()
        last = turns[-1]
        self._remove(most, last)
        if not last.done():  # otherwise its client has just gone
            last.set_exception(self._overloaded())

    def _hand_on(self, former: str) -> None:
        """Give the thread of ``former`` to the next identity."""
        self._at_work[former] -= 1
        self._at_work += Counter()  # drops the identities without a thread
        while self._turns:
            identity = min(self._turns, key=self._at_work.__getitem__)
            turn = self._turns[identity][0]
            self._turns.move_to_end(identity)
            self._remove(identity, turn)
            if not turn.done():
                self._at_work[identity] += 1
                turn.set_result(None)
                return

    def _remove(self, identity: str, turn: Turn) -> None:
        turns = self._turns.get(identity)
        if turns is not None and turn in turns:
            turns.remove(turn)
            self._num_waiting -= 1
            if not turns:
                del self._turns[identity]

    def _overloaded(self) -> ResourceExhaustedStatus:
        return ResourceExhaustedStatus(
            "OVERLOADED",
            f"{self._num_waiting} {self._what} already",
            retry_after_s=RETRY_SECONDS,
        )
