"""Admission control: an answer that has begun is finished, so one that could not be is refused.

Two questions, decided without a clock. How many answers can run at once (``Room``)? By Little's
law, if verifications take l seconds each while N answers run, they would take k seconds if
N k / l ran. And how long would another one wait for its turn (``Admission``)? As long as those
before it take to finish, at the rate at which others have finished.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from statistics import fmean, median

from specmesh.serving.errors import ResourceExhaustedStatus

FIRST_PER_REPLICA = 16
"""Answers that run per replica before anything was measured."""
MAX_FORWARDS = 4.0
"""How many forwards a verification may wait for at its replica. One is enough to keep replicas
busy; the more, the more answers share them, each slower."""
MIN_QUEUE_MS = 50.0
"""A wait at a replica that is acceptable however short a forward is."""
MAX_OVERHEAD_MS = 250.0
"""What a verification may take outside its replica: more, and the orchestrator or the network is
overloaded."""
GROWTH = 1.25
"""Factor by which the room grows while latencies would allow ``SPARE`` times as many answers."""
SPARE = 2.0
SHRINKAGE = 0.75
"""When a replica's queue is full, the room shrinks to this share of the running answers."""
WINDOW = 32
"""After how many verifications the room is decided anew, and how many of the latest answers give
the rate at which answers finish."""
RESUMED = 2.0
"""The room is this many times as large for resumed answers: the replicas had them before."""
MAX_WAIT_SECONDS = 10.0
"""Default of the longest wait for admission."""
MAX_WAITING = 256
"""Most answers that wait at once, to bound their memory."""
MIN_RETRY_SECONDS = 0.5
"""Shortest time after which a refused client is told to retry, before jitter."""


@dataclass(frozen=True, slots=True)
class Spent:
    """Where the time of a verification went, in milliseconds: the replica's queue, forwards, and
    all else that the orchestrator waited for, such as failed attempts."""

    queue_ms: float
    forward_ms: float
    overhead_ms: float

    @classmethod
    def of(cls, total_ms: float, queue_ms: float, forward_ms: float) -> Spent:
        """The rest of ``total_ms`` is overhead, bounded so that a hung call counts as ten slow."""
        overhead_ms = max(0.0, total_ms - queue_ms - forward_ms)
        return cls(queue_ms, forward_ms, min(overhead_ms, 10 * MAX_OVERHEAD_MS))

    @property
    def bearable_share(self) -> float:
        """The acceptable time divided by the actual one; below 1 it took too long."""
        bearable_ms = max(MAX_FORWARDS * self.forward_ms, MIN_QUEUE_MS) + self.forward_ms
        replica_ms = self.queue_ms + self.forward_ms
        return min(
            bearable_ms / max(1e-3, replica_ms), MAX_OVERHEAD_MS / max(1e-3, self.overhead_ms)
        )


class Room:
    """How many answers can run at once: never fewer than replicas.

    The number is decided anew after every ``WINDOW`` verifications.
    """

    def __init__(self) -> None:
        self._size: float | None = None
        self._spent: list[Spent] = []
        self._num_running: list[int] = []
        self._most = inf
        """Upper bound that full queues have set since the last decision."""

    def size(self, num_replicas: int) -> int:
        """Answers that can run at once, at least one per replica."""
        least = max(1, num_replicas)
        return FIRST_PER_REPLICA * least if self._size is None else max(least, int(self._size))

    def answered(self, num_running: int, num_replicas: int, spent: Spent) -> None:
        """Record a verification while ``num_running`` answers ran."""
        self._spent.append(spent)
        self._num_running.append(num_running)
        if len(self._spent) == WINDOW:
            self._size = min(self._decided(num_replicas), self._most)
            self._spent.clear()
            self._num_running.clear()
            self._most = inf

    def refused(self, num_running: int) -> None:
        """Record that a replica's queue was full while ``num_running`` answers ran."""
        self._most = min(self._most, SHRINKAGE * num_running)

    def _decided(self, num_replicas: int) -> float:
        """The new size, from the means of the window: Little's law is about means."""
        size, num_running = self.size(num_replicas), fmean(self._num_running)
        share = Spent(
            fmean(spent.queue_ms for spent in self._spent),
            fmean(spent.forward_ms for spent in self._spent),
            fmean(spent.overhead_ms for spent in self._spent),
        ).bearable_share
        if share < 1:
            return num_running * share
        # Unused room does not show that there is more.
        grows = share > SPARE and max(self._num_running) >= size
        return GROWTH * size + 1 if grows else size


@dataclass(frozen=True, slots=True)
class Overload:
    """Why an answer may not begin now, in numbers."""

    num_running: int
    num_waiting: int
    size: int
    expected_wait_s: float
    retry_after_s: float

    def error(self) -> ResourceExhaustedStatus:
        """The error for the answer's client."""
        return ResourceExhaustedStatus(
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
    """Counts the running answers, and decides whether another may begin, wait, or neither."""

    def __init__(self, max_wait_s: float = MAX_WAIT_SECONDS) -> None:
        self.room = Room()
        self.watcher: Callable[[], None] = lambda: None
        """Called when there may be more room."""
        self.num_running = 0
        self.num_tokens_in_flight = 0
        """Tokens that verifications under way are about."""
        self._max_wait_s = max_wait_s
        self._shares: deque[float] = deque(maxlen=WINDOW)
        """Seconds from one answer's end to the next, estimated from each of the latest answers."""

    @contextmanager
    def verifying(self, num_tokens: int) -> Iterator[None]:
        """Count the tokens of a verification while it is under way."""
        self.num_tokens_in_flight += num_tokens
        try:
            yield
        finally:
            self.num_tokens_in_flight -= num_tokens

    def verified(self, num_replicas: int, spent: Spent) -> None:
        """Record the time of a verification of a running answer."""
        self.room.answered(self.num_running, num_replicas, spent)
        self.watcher()

    def refused(self) -> None:
        """Record that a replica's queue was full."""
        self.room.refused(self.num_running)

    def fits(self, num_replicas: int, *, resumed: bool) -> bool:
        """Whether another answer may begin now."""
        factor = RESUMED if resumed else 1.0
        return self.num_running < factor * self.room.size(num_replicas)

    def expected_wait_s(self, num_before: int) -> float:
        """Expected wait behind ``num_before`` waiting answers; 0 as long as none has finished."""
        return (num_before + 1) * median(self._shares) if self._shares else 0.0

    def patience_s(self, time_left_s: float) -> float:
        """How long an answer may wait that has ``time_left_s`` to its deadline."""
        return min(self._max_wait_s, time_left_s)

    def may_wait(self, num_before: int, num_waiting: int, time_left_s: float) -> bool:
        """Whether an answer behind ``num_before`` others is due in time, and few enough wait."""
        in_time = self.expected_wait_s(num_before) < self.patience_s(time_left_s)
        return in_time and num_waiting < MAX_WAITING

    def overload(self, num_replicas: int, num_waiting: int, wait_s: float, die: float) -> Overload:
        """The refusal of an answer that would wait, or has waited, ``wait_s``: to be retried when
        the wait will be acceptable, with jitter by ``die`` from [0, 1)."""
        come_s = max(MIN_RETRY_SECONDS, wait_s - self._max_wait_s)
        size = self.room.size(num_replicas)
        return Overload(self.num_running, num_waiting, size, wait_s, come_s * (0.5 + die))

    def began(self) -> None:
        """Count an answer that begins."""
        self.num_running += 1

    def gave_up(self) -> None:
        """Uncount an answer that began but did nothing."""
        self.num_running -= 1

    def ended(self, seconds: float, num_at_first: int, num_replicas: int) -> None:
        """Record that an answer ended after ``seconds``; ``num_at_first`` ran when it began."""
        num_beside = (num_at_first + self.num_running) / 2
        # If there was room left, more answers could have finished in the same time.
        self._shares.append(seconds / max(num_beside, self.room.size(num_replicas)))
        self.num_running -= 1
