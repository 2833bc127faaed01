"""This process's part in the request cache in Redis, as long as the connection lasts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from specmesh.confidence.metrics import record_batch
from specmesh.confidence.release import AtWork, Waiting
from specmesh.confidence.request_store import Membership, ReleasedPart


class Sharing:
    """Takes turns, one at a time: what arrives during one goes with the next."""

    def __init__(self, membership: Membership, release: Callable[[ReleasedPart], None]) -> None:
        self._membership = membership
        self._release = release
        self._waiting: dict[int, Waiting] = {}
        self._added: list[Waiting] = []
        self._withdrawn: list[int] = []
        self._seen = AtWork()
        self._wake = asyncio.Event()

    def see(self, session_id: str) -> None:
        """Note that the session is active; the next turn says so."""
        self._seen.see(session_id, time.monotonic())

    def add(self, waiting: Waiting) -> None:
        """Let a request wait."""
        self._waiting[waiting.number] = waiting
        self._added.append(waiting)
        self._wake.set()

    def withdraw(self, number: int) -> None:
        """Forget a request, if it waits."""
        if self._waiting.pop(number, None):
            self._withdrawn.append(number)
            self._wake.set()

    def withdraw_all(self) -> list[Waiting]:
        """Forget all requests that wait, and return them."""
        waiting = list(self._waiting.values())
        for each in waiting:
            self.withdraw(each.number)
        return waiting

    async def run(self) -> None:
        """Take part until the connection breaks: raises ``StoreUnavailable``."""
        # Before Python 3.13 a task group that fails while it is cancelled hides the cancellation.
        both = [asyncio.create_task(work) for work in (self._take_turns(), self._listen())]
        try:
            ended, _ = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                task.result()
        finally:
            for task in both:
                task.cancel()
            await asyncio.gather(*both, return_exceptions=True)

    async def _take_turns(self) -> None:
        due_in_s: float | None = None
        while True:
            await self._await_turn(due_in_s if self._waiting else None)
            added, self._added = self._added, []
            withdrawn, self._withdrawn = self._withdrawn, []
            seen, self._seen = self._seen, AtWork()
            now = time.monotonic()
            turn = await self._membership.turn(
                now, added=added, withdrawn=withdrawn, seen=seen.sessions(now)
            )
            due_in_s = turn.due_in_s
            for part in turn.parts:
                record_batch(part.batch_size)
                self._let_go(part)

    async def _await_turn(self, due_in_s: float | None) -> None:
        """Wait until there is something to send, or the oldest request is due."""
        try:
            async with asyncio.timeout(due_in_s):
                await self._wake.wait()
        except TimeoutError:
            pass
        self._wake.clear()

    async def _listen(self) -> None:
        async for part in self._membership.released_by_others():
            self._let_go(part)

    def _let_go(self, part: ReleasedPart) -> None:
        for number in part.numbers:
            self._waiting.pop(number, None)
        self._release(part)
