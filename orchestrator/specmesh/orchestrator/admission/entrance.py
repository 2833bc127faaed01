"""The admission queue: first come, first served, but resumed answers before new ones."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from specmesh.orchestrator.admission.controller import Admission
from specmesh.serving.errors import ResourceExhaustedStatus
from specmesh.serving.telemetry.pipeline import annotate


class Slot:
    """The slot of an admitted answer, freed at the latest when the block of ``slot`` ends."""

    def __init__(self, leave: Callable[[], None]) -> None:
        self._leave: Callable[[], None] | None = leave

    def leave(self) -> None:
        """Free the slot once the mesh has finished, even if the client has not read everything."""
        leave, self._leave = self._leave, None
        if leave is not None:
            leave()


class Entrance:
    """Admits answers as ``admission`` decides: resumed ones first, each kind in order of arrival.

    ``num_replicas`` returns the number of ready target replicas, ``die`` draws from [0, 1).
    """

    def __init__(
        self,
        admission: Admission,
        num_replicas: Callable[[], int],
        die: Callable[[], float],
    ) -> None:
        self._admission = admission
        self._num_replicas = num_replicas
        self._die = die
        self._resumed: deque[asyncio.Future[None]] = deque()
        self._new: deque[asyncio.Future[None]] = deque()
        admission.watcher = self._let_in

    @property
    def num_waiting(self) -> int:
        """Answers that wait to be admitted."""
        return len(self._resumed) + len(self._new)

    @asynccontextmanager
    async def slot(self, deadline: float, *, resumed: bool) -> AsyncIterator[Slot]:
        """Wait for a slot until ``deadline``, by the event loop's clock, and hold it.

        Raises ``ResourceExhaustedStatus`` with reason OVERLOADED, immediately if no slot is
        expected in time.
        """
        await self._turn(deadline, resumed)
        loop = asyncio.get_running_loop()
        began, num_at_first = loop.time(), self._admission.num_running

        def leave() -> None:
            self._admission.ended(loop.time() - began, num_at_first, self._num_replicas())
            self._let_in()

        slot = Slot(leave)
        try:
            yield slot
        finally:
            slot.leave()

    def _let_in(self) -> None:
        """Admit waiting answers while there is room."""
        for waiting, resumed in ((self._resumed, True), (self._new, False)):
            while waiting and self._fits(resumed=resumed):
                turn = waiting.popleft()
                if not turn.done():
                    self._admission.began()
                    turn.set_result(None)

    async def _turn(self, deadline: float, resumed: bool) -> None:
        """Return when the answer is admitted; raises as ``slot`` does."""
        waiting = self._resumed if resumed else self._new
        if not waiting and self._fits(resumed=resumed):
            self._admission.began()
            return
        time_left_s = deadline - asyncio.get_running_loop().time()
        num_waiting = self.num_waiting
        num_before = len(self._resumed) if resumed else num_waiting
        if not self._admission.may_wait(num_before, num_waiting, time_left_s):
            raise self._overload(self._admission.expected_wait_s(num_before))
        loop = asyncio.get_running_loop()
        began = loop.time()
        turn: asyncio.Future[None] = loop.create_future()
        waiting.append(turn)
        patience_s = self._admission.patience_s(time_left_s)
        try:
            async with asyncio.timeout(patience_s):
                await turn
            annotate(queue_ms=(loop.time() - began) * 1e3)
        except BaseException as error:
            self._give_up(waiting, turn)
            if isinstance(error, TimeoutError):
                raise self._overload(patience_s) from None
            raise

    def _overload(self, wait_s: float) -> ResourceExhaustedStatus:
        return self._admission.overload(
            self._num_replicas(), self.num_waiting, wait_s, self._die()
        ).error()

    def _give_up(self, waiting: deque[asyncio.Future[None]], turn: asyncio.Future[None]) -> None:
        if turn.done() and not turn.cancelled():  # admitted at the last moment
            self._admission.gave_up()
            self._let_in()
        elif turn in waiting:
            waiting.remove(turn)

    def _fits(self, *, resumed: bool) -> bool:
        return self._admission.fits(self._num_replicas(), resumed=resumed)
