"""Who may begin: what has begun is finished, so what could not be is refused before.

Two questions, decided without a clock of their own. How many answers can be at work at once
(``Room``)? By Little's law, if the verifications of N answers take l seconds each, they would take
k if the answers were N k / l. And how long would another one wait for its turn (``Admission``)? As
long as those before it take to leave, at the pace at which others have left.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from statistics import fmean, median

from specmesh.serving.errors import ResourceExhausted

FIRST_PER_REPLICA = 16
"""Answers that a replica gets before anything is known of it."""
MAX_FORWARDS = 4.0
"""How many forwards a verification may wait for at its replica. Replicas are always at work from
one on; the more, the more answers share what there is, each slower."""
MIN_QUEUE_MS = 50.0
"""A wait that nobody minds, however short a forward is."""
MAX_OVERHEAD_MS = 250.0
"""What a verification may take beside: more, and the orchestrator or the net has too much to do."""
GROWTH = 1.25
"""Of the room, as long as all of that could be ``SPARE`` times as much."""
SPARE = 2.0
SHRINKAGE = 0.75
"""Of the answers that are at work when a replica's queue is full."""
WINDOW = 32
"""After how many verifications the room is decided anew, and how many of the latest answers tell
how fast others leave."""
RESUMED = 2.0
"""Answers that were begun elsewhere fill the room so many times over: the replicas had them
before."""
MAX_WAIT_SECONDS = 10.0
"""Nobody waits longer for a turn."""
MAX_WAITING = 256
"""Bounds what those that wait keep in memory."""
MIN_RETRY_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Spent:
    """Where the time of a verification went, in milliseconds: in the replica's queue, in forwards,
    and in all the rest as seen from here, tries that failed among it."""

    queue_ms: float
    forward_ms: float
    overhead_ms: float

    @classmethod
    def of(cls, total_ms: float, queue_ms: float, forward_ms: float) -> Spent:
        """What is left of ``total_ms`` is overhead; one call that hung says no more than ten."""
        overhead_ms = max(0.0, total_ms - queue_ms - forward_ms)
        return cls(queue_ms, forward_ms, min(overhead_ms, 10 * MAX_OVERHEAD_MS))

    @property
    def bearable_share(self) -> float:
        """How many times as long it might have taken; below 1 it was too long."""
        bearable_ms = max(MAX_FORWARDS * self.forward_ms, MIN_QUEUE_MS) + self.forward_ms
        replica_ms = self.queue_ms + self.forward_ms
        return min(
            bearable_ms / max(1e-3, replica_ms), MAX_OVERHEAD_MS / max(1e-3, self.overhead_ms)
        )


class Room:
    """How many answers can be at work at once; decided anew after so many verifications."""

    def __init__(self) -> None:
        self._size: float | None = None
        self._spent: list[Spent] = []
        self._num_running: list[int] = []
        self._most = inf
        """As full queues allow."""

    def size(self, num_replicas: int) -> int:
        """Answers at once; a replica always takes one."""
        least = max(1, num_replicas)
        return FIRST_PER_REPLICA * least if self._size is None else max(least, int(self._size))

    def answered(self, num_running: int, num_replicas: int, spent: Spent) -> None:
        """A verification, while so many answers were at work."""
        self._spent.append(spent)
        self._num_running.append(num_running)
        if len(self._spent) == WINDOW:
            self._size = min(self._decided(num_replicas), self._most)
            self._spent.clear()
            self._num_running.clear()
            self._most = inf

    def refused(self, num_running: int) -> None:
        """A replica's queue was full."""
        self._most = min(self._most, SHRINKAGE * num_running)

    def _decided(self, num_replicas: int) -> float:
        """Of means, as Little's law is."""
        size, num_running = self.size(num_replicas), fmean(self._num_running)
        share = Spent(
            fmean(spent.queue_ms for spent in self._spent),
            fmean(spent.forward_ms for spent in self._spent),
            fmean(spent.overhead_ms for spent in self._spent),
        ).bearable_share
        if share < 1:
            return num_running * share
        # Room that nobody needs tells nothing of how much more there is.
        grows = share > SPARE and max(self._num_running) >= size
        return GROWTH * size + 1 if grows else size


@dataclass(frozen=True, slots=True)
class Overload:
    """Why an answer may not begin now."""

    num_running: int
    num_waiting: int
    size: int
    expected_wait_s: float
    retry_after_s: float

    def error(self) -> ResourceExhausted:
        """What its client is told."""
        return ResourceExhausted(
            "OVERLOADED",
            f"{self.num_running} answers are at work, {self.num_waiting} wait: "
            f"the next would wait about {self.expected_wait_s:.1f} s",
            {
                "num_running": str(self.num_running),
                "max_running": str(self.size),
                "num_waiting": str(self.num_waiting),
                "expected_wait_ms": str(round(self.expected_wait_s * 1e3)),
            },
            retry_after_s=self.retry_after_s,
        )


class Admission:
    """Counts the answers at work and says who may begin, wait, or neither."""

    def __init__(self, max_wait_s: float = MAX_WAIT_SECONDS) -> None:
        self.room = Room()
        self.watcher: Callable[[], None] = lambda: None
        """Called when there may be more room."""
        self.num_running = 0
        self._max_wait_s = max_wait_s
        self._shares: deque[float] = deque(maxlen=WINDOW)
        """Seconds from one answer's end to the next, as each of the latest tells."""

    def verified(self, num_replicas: int, spent: Spent) -> None:
        """A verification of one of the answers at work took so long."""
        self.room.answered(self.num_running, num_replicas, spent)
        self.watcher()

    def refused(self) -> None:
        """A replica had no room for one."""
        self.room.refused(self.num_running)

    def fits(self, num_replicas: int, *, resumed: bool) -> bool:
        """Whether another answer may be at work at once."""
        factor = RESUMED if resumed else 1.0
        return self.num_running < factor * self.room.size(num_replicas)

    def expected_wait_s(self, num_before: int) -> float:
        """Until an answer begins that waits behind so many; 0 as long as none has ended."""
        return (num_before + 1) * median(self._shares) if self._shares else 0.0

    def patience_s(self, time_left_s: float) -> float:
        """How long an answer with so much time may wait for its turn."""
        return min(self._max_wait_s, time_left_s)

    def may_wait(self, num_before: int, num_waiting: int, time_left_s: float) -> bool:
        """Whether an answer behind ``num_before`` of those that wait will have its turn in time."""
        in_time = self.expected_wait_s(num_before) < self.patience_s(time_left_s)
        return in_time and num_waiting < MAX_WAITING

    def overload(self, num_replicas: int, num_waiting: int, wait_s: float, die: float) -> Overload:
        """What to tell an answer that would wait, or has waited, ``wait_s``: to come again when
        that is short enough, each at another time (``die`` is from [0, 1))."""
        come_s = max(MIN_RETRY_SECONDS, wait_s - self._max_wait_s)
        size = self.room.size(num_replicas)
        return Overload(self.num_running, num_waiting, size, wait_s, come_s * (0.5 + die))

    def began(self) -> None:
        """Another answer is at work."""
        self.num_running += 1

    def gave_up(self) -> None:
        """One that had begun did nothing."""
        self.num_running -= 1

    def ended(self, seconds: float, num_at_first: int, num_replicas: int) -> None:
        """An answer has left after so long, which was one of ``num_at_first`` when it began."""
        beside = (num_at_first + self.num_running) / 2
        # With room left, more of them would have left in the same time.
        self._shares.append(seconds / max(beside, self.room.size(num_replicas)))
        self.num_running -= 1
