"""Threads for work that would hold up the event loop, shared fairly among those who ask for it."""

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
    """Does ``max_at_work`` things at once and lets ``max_waiting`` more wait.

    The identity with the fewest things at work is next, whatever each has waiting; those with as
    many take turns. One that finds every place taken gets that of the last thing of the identity
    with the most (longest queue drop), unless that would leave it with more: so an identity may
    have all places, but keeps nobody else out.
    ``what`` completes "16 ..." for whom is refused.
    """

    def __init__(self, name: str, max_at_work: int, max_waiting: int, what: str) -> None:
        self._threads = ThreadPoolExecutor(max_at_work, thread_name_prefix=name)
        self._max_at_work = max_at_work
        self._at_work: Counter[str] = Counter()
        """Threads that each identity has."""
        self._max_waiting = max_waiting
        self._num_waiting = 0
        self._what = what
        self._turns: OrderedDict[str, deque[Turn]] = OrderedDict()
        """Who waits, by identity; of two with as much at work the first is next."""

    async def run(self, work: Callable[..., T], *arguments: Any) -> T:
        """What ``work`` returns or raises; ``ResourceExhaustedStatus`` with reason OVERLOADED if
        too much waits."""
        identity = caller.identity()
        await self._thread(identity)
        # Work whose client has gone counts until its thread has finished with it.
        future = self._threads.submit(work, *arguments)
        loop = asyncio.get_running_loop()
        future.add_done_callback(lambda _: loop.call_soon_threadsafe(self._hand_on, identity))
        return await asyncio.wrap_future(future)

    async def close(self) -> None:
        """Drop what waits, and return once what is at work has ended."""
        for turns in self._turns.values():
            for turn in turns:
                turn.cancel()
        await asyncio.to_thread(self._threads.shutdown)

    async def _thread(self, identity: str) -> None:
        """Return when ``identity`` has a thread."""
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
                self._hand_on(identity)  # its turn had come
            else:
                self._remove(identity, turn)
            raise

    def _make_room(self, identity: str) -> None:
        most, turns = max(self._turns.items(), key=lambda each: len(each[1]))
        if len(turns) <= len(self._turns.get(identity, ())) + 1:
            raise self._overloaded()
        last = turns[-1]
        self._remove(most, last)
        if not last.done():  # else its client has just gone
            last.set_exception(self._overloaded())

    def _hand_on(self, former: str) -> None:
        """Give the thread that ``former`` had to who is next."""
        self._at_work[former] -= 1
        self._at_work += Counter()  # forgets who has none
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
