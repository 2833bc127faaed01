"""The admission queue: identities take turns, and resumed answers of each go before new ones."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from math import inf

from specmesh.orchestrator.admission.controller import (
    MAX_RESUMED_WAITING,
    MAX_WAITING,
    Admission,
)
from specmesh.orchestrator.admission.fair_queue import FairQueue
from specmesh.orchestrator.admission.slot import Slot
from specmesh.serving import caller
from specmesh.serving.errors import ResourceExhaustedStatus
from specmesh.serving.telemetry.pipeline import annotate

LOOK_SECONDS = 0.1
"""Interval of looking for answers that wait in vain, which takes a tenth of a millisecond."""


Turn = asyncio.Future[Slot | ResourceExhaustedStatus]
"""The slot of a waiting answer, once it is admitted, or the error by which it is refused after all.
"""


class Entrance:
    """Admits answers as ``admission`` decides. Identities take turns as in ``FairQueue``, and their
    resumed answers go before new ones of theirs and of those that have as many running.

    When as many wait as may, an answer takes the place of the last one of the same kind of the
    identity with the most, unless its own identity would then have more; a resumed one takes that
    of a new one first, unless its identity has more waiting.

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
        self._running: Counter[str] = Counter()
        self._resumed: FairQueue[Turn] = FairQueue(self._running)
        self._new: FairQueue[Turn] = FairQueue(self._running)
        self._num_over = 0
        """Running answers that were resumed over the room."""
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
        most, queue = self._most(identity, now, resumed=resumed), self._queue(resumed=resumed)
        num_before = self._num_before(identity, resumed=resumed)
        if not num_before and self._admission.num_running < most:
            return
        is_full = len(queue) >= MAX_RESUMED_WAITING if resumed else self._is_full
        may_wait = self._admission.may_wait(num_before, most, deadline - now, now, resumed=resumed)
        if not may_wait or (is_full and not queue.is_crowded_by_others(identity)):
            raise self._overload(self._admission.expected_wait_s(num_before, most, now))

    @asynccontextmanager
    async def slot(self, deadline: float, *, resumed: bool) -> AsyncIterator[Slot]:
        """Wait for a slot until ``deadline``, by the event loop's clock, and hold it.

        Raises ``ResourceExhaustedStatus`` with reason OVERLOADED, immediately if the answer may
        not wait.
        """
        self.check(deadline, resumed=resumed)
        identity, waiting = caller.identity(), self._queue(resumed=resumed)
        if waiting or self._admission.num_running >= self._most(identity, _now(), resumed=resumed):
            slot = await self._turn(waiting, deadline)
        else:
            slot = self._begin(identity, resumed=resumed)
        try:
            yield slot
        finally:
            slot.leave()

    def _queue(self, *, resumed: bool) -> FairQueue[Turn]:
        return self._resumed if resumed else self._new

    def _most(self, identity: str, now: float, *, resumed: bool) -> int:
        """Return up to how many answers may run when one of ``identity`` begins."""
        size, num_identities = self.room(now), len(self._running) + (identity not in self._running)
        is_below_share = self._running[identity] * num_identities < size
        return self._admission.most(
            size, self._num_over, resumed=resumed, is_below_share=is_below_share
        )

    def _num_before(self, identity: str, *, resumed: bool) -> int:
        """Return how many answers would begin before one that comes now."""
        num_resumed = self._resumed.num_before(identity, self._new.num_waiting(identity))
        if resumed:
            return self._resumed.num_before(identity)
        return num_resumed + self._new.num_before(identity, self._resumed.num_waiting(identity))

    def _begin(self, identity: str, *, resumed: bool) -> Slot:
        is_over = resumed and self._admission.num_running >= self.room(_now())
        self._num_over += is_over
        self._new.begun(identity)

        def left() -> None:
            self._num_over -= is_over
            self._new.ended(identity)
            self._decide()

        return Slot(self._admission, left)

    async def _turn(self, waiting: FairQueue[Turn], deadline: float) -> Slot:
        """Return the slot when the answer is admitted; raises as ``slot`` does.

        A new one whose patience ends is admitted over the room, as far as resumed answers are: it
        was let in to wait because a place was expected for it.
        """
        began, identity, resumed = _now(), caller.identity(), waiting is self._resumed
        patience_s = self._admission.patience_s(deadline - began)
        turn: Turn = asyncio.get_running_loop().create_future()
        self._make_place(waiting, identity)
        waiting.append(identity, turn)
        self._admit(began)
        try:
            async with asyncio.timeout(patience_s):
                slot = await turn
        except BaseException as error:
            self._give_up(waiting, identity, turn)
            if not isinstance(error, TimeoutError):
                raise
            most = self._most(identity, _now(), resumed=True)
            if _now() >= deadline or self._admission.num_running >= most:
                raise self._overload(patience_s, resumed=resumed) from None
            slot = self._begin(identity, resumed=resumed)
        if isinstance(slot, ResourceExhaustedStatus):
            raise slot
        annotate(queue_ms=(_now() - began) * 1e3)
        return slot

    def _decide(self) -> None:
        """Admit waiting answers while there is room, and look now and then for those that would
        wait in vain."""
        if not self.num_waiting:
            return
        now = _now()
        self._admit(now)
        if self._new and now - self._looked_at >= LOOK_SECONDS:
            self._looked_at = now
            self._turn_away(now)

    def _admit(self, now: float) -> None:
        """Let waiting answers begin while there is room."""
        while (waiting := self._next(now)) is not None:
            identity, turn = waiting.pop()
            if not turn.done():
                turn.set_result(self._begin(identity, resumed=waiting is self._resumed))

    def _next(self, now: float) -> FairQueue[Turn] | None:
        """Return the queue whose next answer may begin; None if none may."""
        fitting = [
            waiting
            for waiting, resumed in ((self._resumed, True), (self._new, False))
            if waiting
            and self._admission.num_running
            < self._most(waiting.next_identity, now, resumed=resumed)
        ]
        return min(fitting, key=lambda each: self._running[each.next_identity], default=None)

    def _turn_away(self, now: float) -> None:
        """Refuse the answers that would wait in vain, from the last."""
        while self._new and self._admission.is_hopeless(self._last_wait_s(self._new, now)):
            self._refuse_last(self._new)

    def _refuse_last(self, waiting: FairQueue[Turn]) -> None:
        """Refuse the last answer of the identity with the most, and tell what it would wait."""
        wait_s = self._last_wait_s(waiting, _now())
        turn = waiting.pop_longest()
        if not turn.done():
            turn.set_result(self._overload(wait_s, resumed=waiting is self._resumed))

    def _last_wait_s(self, waiting: FairQueue[Turn], now: float) -> float | None:
        """Return the expected wait of the last answer of the identity with the most."""
        identity, resumed = waiting.longest_identity, waiting is self._resumed
        num_before = len(waiting) - 1
        if not resumed:
            num_before += self._resumed.num_before(identity, waiting.num_waiting(identity) - 1)
        most = self._most(identity, now, resumed=resumed)
        return self._admission.expected_wait_s(num_before, most, now)

    @property
    def _is_full(self) -> bool:
        """True if no new answer may wait; resumed ones leave half of the places to these."""
        return len(self._new) + min(len(self._resumed), MAX_WAITING // 2) >= MAX_WAITING

    def _make_place(self, waiting: FairQueue[Turn], identity: str) -> None:
        """Refuse an answer if one more than may wait, of ``identity``, is about to."""
        if waiting is self._resumed and len(waiting) >= MAX_RESUMED_WAITING:
            self._refuse_last(waiting)
        elif self._new and (self._is_full if waiting is self._new else self._gives_way(identity)):
            self._refuse_last(self._new)

    def _gives_way(self, identity: str) -> bool:
        """Return whether the last new answer makes room for a resumed one of ``identity``."""
        if self.num_waiting < MAX_WAITING:
            return False
        return self._num_of(self._new.longest_identity) >= self._num_of(identity)

    def _num_of(self, identity: str) -> int:
        """Return how many answers of ``identity`` wait."""
        return self._resumed.num_waiting(identity) + self._new.num_waiting(identity)

    def _overload(self, wait_s: float | None, *, resumed: bool = False) -> ResourceExhaustedStatus:
        told = self.room(_now()), self.num_waiting, wait_s, self._die()
        return self._admission.overload(*told, resumed=resumed).error()

    def _give_up(self, waiting: FairQueue[Turn], identity: str, turn: Turn) -> None:
        is_decided = not waiting.remove(identity, turn)
        if is_decided and not turn.cancelled() and isinstance(slot := turn.result(), Slot):
            slot.leave()  # admitted at the last moment


def _now() -> float:
    return asyncio.get_running_loop().time()
