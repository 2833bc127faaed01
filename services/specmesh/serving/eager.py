"""Eager start of coroutines, as Python 3.12 has it with ``eager_start``."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from types import coroutine
from typing import Any


class EagerWork:
    """A coroutine that runs up to its first wait at once, and without a task of its own while its
    caller waits for it. A task costs several turns of the event loop and its place among all tasks.

    The coroutine must hold nothing of the task that runs it, as ``asyncio.timeout`` does: it may
    go on in another. Raises what the coroutine raises before its first wait.
    """

    def __init__(self, work: Coroutine[Any, Any, None]) -> None:
        self.done = False
        """True if the coroutine has ended."""
        self._work = work
        self._waits_for: Any = None
        """The future, or None for the next turn of the event loop, that it waits for."""
        self._waiter: asyncio.Future[None] | None = None
        self._is_late = False
        self._step()

    async def wait(self, seconds: float | None = None) -> bool:
        """Return whether the coroutine ends within ``seconds``; None waits for that. Raises what it
        raises. If the caller is cancelled, the coroutine is not: it stands still, as it does after
        that time."""
        loop = asyncio.get_running_loop()
        timer = None if seconds is None else loop.call_later(seconds, self._late)
        try:
            while not (self.done or self._is_late):
                self._waiter = loop.create_future()
                if self._waits_for is None:
                    loop.call_soon(self._wake)
                else:
                    self._waits_for.add_done_callback(self._wake)
                await self._waiter
                if self._waits_for is None or self._waits_for.done():
                    self._step()
        finally:
            if timer is not None:
                timer.cancel()
        return self.done

    def go_on(self) -> asyncio.Task[None]:
        """Return a task that runs the rest of the coroutine, which has not ended."""
        return asyncio.create_task(_rest(self._work, self._waits_for))

    def close(self) -> None:
        """End the coroutine where it waits."""
        self._work.close()

    def _wake(self, _: object = None) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _late(self) -> None:
        self._is_late = True
        self._wake()

    def _step(self) -> None:
        """Run up to the next wait."""
        try:
            self._waits_for = self._work.send(None)
        except StopIteration:
            self.done = True
            return
        if self._waits_for is not None:
            # The mark by which a task sees that a future was awaited: here, the task has not.
            self._waits_for._asyncio_future_blocking = False


def begin(work: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
    """Run ``work`` up to its first wait; return a task for the rest, or None if it is done."""
    begun = EagerWork(work)
    return None if begun.done else begun.go_on()


@coroutine
def _rest(work: Coroutine[Any, Any, None], waits_for: Any) -> Generator[Any, Any, None]:
    if waits_for is not None:
        waits_for._asyncio_future_blocking = True
    while True:
        try:
            try:
                value = yield waits_for
            except BaseException as error:  # thrown into the task, for example by cancellation
                waits_for = work.throw(error)
            else:
                waits_for = work.send(value)
        except StopIteration:
            return
