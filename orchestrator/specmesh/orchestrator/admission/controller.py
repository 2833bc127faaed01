"""Admission control: an answer that has begun is finished, so one that could not be is refused.

``Room`` says how many answers run concurrently, ``AnswerPace`` how soon they end, and ``Admission``
who begins, who waits and who is refused: a new answer waits only if it is expected to begin well
within its patience. No clock: times are passed in, in seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from specmesh.orchestrator.admission.pace import AnswerPace
from specmesh.orchestrator.admission.room import Room, Spent
from specmesh.serving.errors import ResourceExhaustedStatus

RESUMED = 2.0
"""Factor by which the room is larger for resumed answers: the replicas have run them before."""
MAX_WAIT_SECONDS = 10.0
"""Default of the longest wait for admission."""
EXPECTED_SHARE = 0.5
"""An answer may wait if it is expected to begin within this share of its patience, so that it does
begin in time if the others take up to twice as long as expected."""
HOPELESS_FACTOR = 2.0
"""A waiting answer is refused once its expected wait is this many times the longest one: what is
expected may be too long as well."""
MAX_WAITING = 256
"""Most answers that wait concurrently, to bound their memory."""
MAX_RESUMED_WAITING = MAX_WAITING // 2
"""Most of them that are resumed: any client can say that its answer began elsewhere."""
MIN_RETRY_SECONDS = 0.5
"""Shortest delay before a refused client should retry, before jitter."""
LONGEST_SECONDS = 3600.0
"""Longest wait that is told; it stands for no end in sight."""


@dataclass(frozen=True, slots=True)
class Overload:
    """The numbers that explain why an answer may not begin now."""

    num_running: int
    num_waiting: int
    size: int
    expected_wait_s: float | None
    """None until it is known how fast answers proceed."""
    retry_after_s: float

    def error(self) -> ResourceExhaustedStatus:
        """Return the error for the answer's client."""
        expected_s = self.expected_wait_s
        told = "" if expected_s is None else f": another would wait about {expected_s:.1f} s"
        error = ResourceExhaustedStatus(
            "OVERLOADED",
            f"{self.num_running} answers are running and {self.num_waiting} are waiting{told}",
            {
                "num_running": str(self.num_running),
                "max_running": str(self.size),
                "num_waiting": str(self.num_waiting),
            },
            retry_after_s=self.retry_after_s,
        )
        if expected_s is not None:
            error.metadata["expected_wait_ms"] = str(round(expected_s * 1e3))
        return error


class Admission:
    """Counts the running answers and decides whether another begins, waits or is refused."""

    def __init__(self, max_wait_s: float = MAX_WAIT_SECONDS) -> None:
        self.room = Room()
        self.pace = AnswerPace()
        self.watcher: Callable[[], None] = lambda: None
        """Called when there may be more room."""
        self.num_tokens_in_flight = 0
        """Tokens sent in verifications that are under way."""
        self._max_wait_s = max_wait_s

    @property
    def num_running(self) -> int:
        """Answers that run."""
        return self.pace.num_running

    def verified(self, num_replicas: int, spent: Spent, now: float, times: int = 1) -> None:
        """Record the time of that many verifications of a running answer."""
        self.room.answered(self.num_running, num_replicas, spent, now, times)
        self.watcher()

    def refused(self, now: float) -> None:
        """Record that no replica had room for a call."""
        self.room.refused(self.num_running, now)

    def most(self, size: int, num_over: int, *, resumed: bool, is_below_share: bool) -> int:
        """Return up to how many answers may run when one begins, with room for ``size``.

        Those that were resumed over the room, ``num_over``, take none of it from an identity that
        ``is_below_share``: anybody can say that an answer began elsewhere."""
        most_resumed = int(RESUMED * size)
        if resumed:
            return most_resumed
        return min(most_resumed, size + num_over) if is_below_share else size

    def expected_wait_s(self, num_before: int, size: int, now: float) -> float | None:
        """Return the expected wait behind ``num_before`` answers while there is room for ``size``
        and more run; None until it is known how fast answers proceed."""
        num_to_end = max(0, self.num_running - size) + num_before + 1
        wait_s = self.pace.until_ended_s(num_to_end, now)
        return None if wait_s is None else min(LONGEST_SECONDS, wait_s)

    def patience_s(self, time_left_s: float) -> float:
        """Return the longest wait of an answer with ``time_left_s`` until its deadline."""
        return min(self._max_wait_s, time_left_s)

    def may_wait(
        self, num_before: int, size: int, time_left_s: float, now: float, *, resumed: bool
    ) -> bool:
        """Return whether an answer may wait behind ``num_before`` others: if it is expected to
        begin well within its patience, and to end before its deadline, or if that is unknown and
        it has any patience.

        A resumed one always may. Its client could only come again, and the room, which shrank while
        an orchestrator was dying, usually grows long before a running answer ends."""
        if resumed:
            return True
        wait_s = self.expected_wait_s(num_before, size, now)
        if wait_s is None:
            return self.patience_s(time_left_s) > 0
        patience_s = self.patience_s(time_left_s - (self.pace.answer_s(now) or 0.0))
        return wait_s < EXPECTED_SHARE * patience_s

    def is_hopeless(self, wait_s: float | None) -> bool:
        """Return whether a waiting answer, which is now expected to wait for ``wait_s``, will not
        begin in time by far, although that was possible when it came."""
        return wait_s is not None and wait_s > HOPELESS_FACTOR * self._max_wait_s

    def overload(
        self,
        size: int,
        num_waiting: int,
        wait_s: float | None,
        die: float,
        *,
        resumed: bool = False,
    ) -> Overload:
        """Return the refusal of an answer that would wait, or has waited, ``wait_s``; None if that
        is unknown.

        The client should retry when it may be let in, with jitter from ``die``, drawn from [0, 1);
        soon if the answer was ``resumed``, because it may then wait again."""
        come_s = MIN_RETRY_SECONDS
        if not resumed and wait_s is not None:
            come_s = max(come_s, wait_s - EXPECTED_SHARE * self._max_wait_s)
        retry_after_s = min(come_s, self._max_wait_s) * (0.5 + die)
        return Overload(self.num_running, num_waiting, size, wait_s, retry_after_s)
