"""The admission queue: resumed answers go before new ones, and identities take turns."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from math import inf

from specmesh.orchestrator.admission.controller import MAX_RESUMED_WAITING, Admission
from specmesh.orchestrator.admission.fair_queue import FairQueue
from specmesh.serving import caller
from specmesh.serving.errors import ResourceExhaustedStatus
from specmesh.serving.telemetry.pipeline import annotate

LOOK_SECONDS = 0.1
"""Interval of looking for answers that wait in vain, which takes a tenth of a millisecond."""


class Slot:
    """The slot of an admitted answer, freed at the latest when the block of ``slot`` ends."""

    def __init__(self, admission: Admission, left: Callable[[], None]) -> None:
        self._pace = admission.pace
        self._answer = self._pace.began(_now())
        self._left = left
        self._is_held = True

    def limit(self, num_tokens: int) -> None:
        """Record that the answer may get at most ``num_tokens``."""
        self._answer.limit = num_tokens

    def progressed(self, num_tokens: int) -> None:
        """Record that the answer got ``num_tokens``."""
        self._pace.progressed(self._answer, num_tokens, _now())

    def leave(self) -> None:
        """Free the slot once the mesh has finished, even if the client has not read everything."""
        if self._is_held:
            self._is_held = False
            self._pace.ended(self._answer, _now())
            self._left()


Turn = asyncio.Future[Slot | None]
"""The slot of a waiting answer, once it is admitted; None if it is refused after all."""


class Entrance:
    """Admits answers as ``admission`` decides: resumed ones first, and of each kind identities take
    turns as in ``FairQueue``. When as many wait as may, an answer takes the place of the last one
    of the same kind of the identity with the most, unless its own identity would then have more; a
    resumed one takes that of a new one first.

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
        running: Counter[str] = Counter()
        self._resumed: FairQueue[Turn] = FairQueue(running)
        self._new: FairQueue[Turn] = FairQueue(running)
        self._looked_at = -inf
        admission.watcher = self._decide

    @property
    def num_waiting(self) -> int:
        """Answers that wait to be admitted."""
        return len(self._resumed) + len(self._new)

    def room(self, now: float) -> int:
        """Return the number of answers that may run concurrently."""
        return self._admission.room.size(self._num_replicas(), now)

    def check(self, deadline: float, *, resumed: bool) -> None:
        """Raise what ``slot`` would raise immediately, so that an answer that can't be admitted
        costs no further work."""
        now, identity = _now(), caller.identity()
        size, queue = self.room(now), self._resumed if resumed else self._new
        num_before = len(self._resumed) + (0 if resumed else len(self._new))
        if not num_before and self._admission.fits(size, resumed=resumed):
            return
        num_before = queue.num_before(identity) + (0 if resumed else len(self._resumed))
        if resumed:
            is_full = len(queue) >= MAX_RESUMED_WAITING
        else:
            is_full = self.num_waiting >= self._admission.most_waiting(size, now)
        may_wait = self._admission.may_wait(num_before, size, deadline - now, now, resumed=resumed)
        if not may_wait or (is_full and not queue.is_crowded_by_others(identity)):
            raise self._overload(self._admission.expected_wait_s(num_before, size, now))

    @asynccontextmanager
    async def slot(self, deadline: float, *, resumed: bool) -> AsyncIterator[Slot]:
        """Wait for a slot until ``deadline``, by the event loop's clock, and hold it.

        Raises ``ResourceExhaustedStatus`` with reason OVERLOADED, immediately if the answer may
        not wait.
        """
        self.check(deadline, resumed=resumed)
        waiting = self._resumed if resumed else self._new
        if waiting or not self._admission.fits(self.room(_now()), resumed=resumed):
            slot = await self._turn(waiting, deadline)
        else:
            slot = self._begin(caller.identity())
        try:
            yield slot
        finally:
            slot.leave()

    def _begin(self, identity: str) -> Slot:
        self._new.begun(identity)

        def left() -> None:
            self._new.ended(identity)
            self._decide()

        return Slot(self._admission, left)

    async def _turn(self, waiting: FairQueue[Turn], deadline: float) -> Slot:
        """Return the slot when the answer is admitted; raises as ``slot`` does.

        A new one whose patience ends is admitted over the room, as far as resumed answers are: it
        was let in to wait because a place was expected for it.
        """
        began, identity = _now(), caller.identity()
        patience_s = self._admission.patience_s(deadline - began)
        turn: Turn = asyncio.get_running_loop().create_future()
        self._make_place(waiting, began)
        waiting.append(identity, turn)
        try:
            async with asyncio.timeout(patience_s):
                slot = await turn
        except BaseException as error:
            self._give_up(waiting, identity, turn)
            if not isinstance(error, TimeoutError):
                raise
            if _now() >= deadline or not self._admission.fits(self.room(_now()), resumed=True):
                resumed = waiting is self._resumed
                raise self._overload(patience_s, resumed=resumed) from None
            slot = self._begin(identity)
        if slot is None:
            raise self._overload(_now() - began)
        annotate(queue_ms=(_now() - began) * 1e3)
        return slot

    def _decide(self) -> None:
        """Admit waiting answers while there is room, and look now and then for those that would
        wait in vain."""
        if not self.num_waiting:
            return
        now = _now()
        size = self.room(now)
        for waiting, resumed in ((self._resumed, True), (self._new, False)):
            while waiting and self._admission.fits(size, resumed=resumed):
                identity, turn = waiting.pop()
                if not turn.done():
                    turn.set_result(self._begin(identity))
        if self._new and now - self._looked_at >= LOOK_SECONDS:
            self._looked_at = now
            self._turn_away(size, now)

    def _turn_away(self, size: int, now: float) -> None:
        """Refuse the answers that would wait in vain, from the last."""
        while self._new and self._admission.is_hopeless(self.num_waiting - 1, size, now):
            _refuse_last(self._new)

    def _make_place(self, waiting: FairQueue[Turn], now: float) -> None:
        """Refuse an answer if one more than may wait is about to, in ``waiting``."""
        if waiting is self._resumed and len(waiting) >= MAX_RESUMED_WAITING:
            _refuse_last(waiting)
        elif self._new and self.num_waiting >= self._admission.most_waiting(self.room(now), now):
            _refuse_last(self._new)

    def _overload(self, wait_s: float | None, *, resumed: bool = False) -> ResourceExhaustedStatus:
        told = self.room(_now()), self.num_waiting, wait_s, self._die()
        return self._admission.overload(*told, resumed=resumed).error()

    def _give_up(self, waiting: FairQueue[Turn], identity: str, turn: Turn) -> None:
        is_decided = not waiting.remove(identity, turn)
        if is_decided and not turn.cancelled() and (slot := turn.result()):
            slot.leave()  # admitted at the last moment


def _refuse_last(waiting: FairQueue[Turn]) -> None:
    turn = waiting.pop_longest()
    if not turn.done():
        turn.set_result(None)


def _now() -> float:
    return asyncio.get_running_loop().time()
