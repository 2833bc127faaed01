"""Hedging: a late call is sent to a second replica as well, and the first answer wins (Dean &
Barroso, "The Tail at Scale", 2013).

A budget, as in gRPC's proposal A6, keeps hedges from making an overload worse.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeAlias, TypeVar

HEDGES_PER_CALL = 0.05
"""Added to the budget by each answered call."""
MAX_HEDGES = 10.0
"""Most hedges that the budget can hold."""

Answer = TypeVar("Answer")
Try: TypeAlias = Coroutine[Any, Any, Answer | None]


class HedgeBudget:
    """Limits hedges to ``MAX_HEDGES`` plus ``HEDGES_PER_CALL`` for each answered call."""

    def __init__(self) -> None:
        self._left = MAX_HEDGES

    def spend(self) -> bool:
        """Take one hedge from the budget and return whether there was one."""
        if self._left < 1:
            return False
        self._left -= 1
        return True

    def earn(self) -> None:
        """Add the budget that an answered call earns."""
        self._left = min(MAX_HEDGES, self._left + HEDGES_PER_CALL)


class Hedge(Generic[Answer]):
    """One call and at most one hedge of it, begun if it has no answer after ``late_s`` seconds.

    ``may_begin`` tells whether the hedge may start; if not, it is called again after another
    ``late_s``. An attempt that returns None has failed and leaves the answer to the other. Neither
    attempt is still running when ``race`` returns.
    """

    def __init__(
        self, late_s: float, may_begin: Callable[[], bool], second: Callable[[], Try[Answer]]
    ) -> None:
        self._late_s = late_s
        self._may_begin = may_begin
        self._begin = second
        self._second: asyncio.Task[Answer | None] | None = None
        self._over = False
        """True if the first attempt has ended."""
        self.overtaken = False
        """True if the hedge decided the call before the first attempt had a result."""

    @property
    def begun(self) -> bool:
        """True if the hedge was started."""
        return self._second is not None

    async def race(self, first: Try[Answer]) -> Answer | None:
        """Return the result of ``first`` or of the hedge, whichever comes first; None if both
        failed. Raises what either raises, and cancels the attempt that is not needed."""
        task = asyncio.current_task()
        assert task is not None
        self._task, cancelling = task, task.cancelling()
        self._timer = asyncio.get_running_loop().call_later(self._late_s, self._late)
        try:
            answer = await first
            if answer is None and self._second is not None:
                self._over = True
                answer = await self._second
            return answer
        except asyncio.CancelledError:
            if self._second is None or not self.overtaken or task.uncancel() > cancelling:
                raise
            return self._second.result()
        finally:
            self._over = True
            self._timer.cancel()
            if self._second is not None:
                self._second.cancel()
                await asyncio.gather(self._second, return_exceptions=True)

    def _late(self) -> None:
        if not self._may_begin():
            self._timer = asyncio.get_running_loop().call_later(self._late_s, self._late)
            return
        self._second = asyncio.create_task(self._begin())
        self._second.add_done_callback(self._second_done)

    def _second_done(self, second: asyncio.Task[Answer | None]) -> None:
        """End the first attempt if it is still running, unless the hedge failed too (None).

        This is called even if both ended in the same step of the event loop.
        """
        if self._over or second.cancelled():
            return
        if second.exception() is None and second.result() is None:
            return
        self.overtaken = True
        self._task.cancel()
