"""A second try of a call that is late, elsewhere: the first answer wins (Dean & Barroso, "The
Tail at Scale", 2013).

A budget as in gRPC's proposal A6 keeps it from making an overload worse.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeAlias, TypeVar

HEDGES_PER_CALL = 0.05
MAX_HEDGES = 10.0
"""So many may come at once, after many calls without."""

Answer = TypeVar("Answer")
Try: TypeAlias = Coroutine[Any, Any, Answer | None]


class HedgeBudget:
    """How many second tries there may be: a share of the calls."""

    def __init__(self) -> None:
        self._left = MAX_HEDGES

    def spend(self) -> bool:
        """Whether there may be one now; it is counted."""
        if self._left < 1:
            return False
        self._left -= 1
        return True

    def earn(self) -> None:
        """A call was answered."""
        self._left = min(MAX_HEDGES, self._left + HEDGES_PER_CALL)


class Hedge(Generic[Answer]):
    """Tries once more what has no answer after ``late_s``, at most once.

    ``may_begin`` says whether there can be a second try; if not, it is asked again after as
    long. The result None of a try means that it had no answer, which leaves it to the other.
    """

    def __init__(
        self, late_s: float, may_begin: Callable[[], bool], second: Callable[[], Try[Answer]]
    ) -> None:
        self._late_s = late_s
        self._may_begin = may_begin
        self._begin = second
        self._second: asyncio.Task[Answer | None] | None = None
        self._over = False
        """Whether the first has ended."""
        self.overtaken = False
        """Whether the second try ended the call before the first one had a result."""

    @property
    def begun(self) -> bool:
        """Whether there is, or was, a second try."""
        return self._second is not None

    async def race(self, first: Try[Answer]) -> Answer | None:
        """The result of ``first``, or of the second if that comes before; None if neither has
        an answer. Raises what either raises. The one that is not needed is cancelled."""
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
        """Whatever it brought but nothing ends the first, if that is still under way.

        Both may have ended in one step of the event loop, and then this comes all the same.
        """
        if self._over or second.cancelled():
            return
        if second.exception() is None and second.result() is None:
            return
        self.overtaken = True
        self._task.cancel()
