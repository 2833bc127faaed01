"""Admission control: an answer that has begun is finished, so one that could not be is refused.

Two decisions, both made without a clock. ``Room`` is the number of answers that can run
concurrently: by Little's law, if verifications take l seconds while N answers run, they would take
k seconds with N k / l answers. ``Admission`` estimates the wait of another answer: the answers
ahead of it must finish first, at the rate at which recent answers have finished.
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
"""Answers that run per replica before anything has been measured."""
MAX_FORWARDS = 4.0
"""Longest acceptable queue at a replica, in forwards. One is enough to keep replicas busy; with
more, more answers share the replicas and each gets slower."""
MIN_QUEUE_MS = 50.0
"""Wait at a replica that is acceptable however short a forward is."""
MAX_OVERHEAD_MS = 250.0
"""Acceptable time of a verification outside its replica; a longer time means that the orchestrator
or the network is overloaded."""
GROWTH = 1.25
"""Factor by which the room grows when latencies would allow ``SPARE`` times as many answers."""
SPARE = 2.0
SHRINKAGE = 0.75
"""When a replica's queue is full, the room shrinks to this share of the running answers."""
WINDOW = 32
"""Verifications between two decisions about the room, and the number of latest answers from which
the rate of finishing is estimated."""
RESUMED = 2.0
"""Factor by which the room is larger for resumed answers: the replicas have run them before."""
MAX_WAIT_SECONDS = 10.0
"""Default of the longest wait for admission."""
MAX_WAITING = 256
"""Most answers that wait concurrently, to bound their memory."""
MIN_RETRY_SECONDS = 0.5
"""Shortest delay before a refused client should retry, before jitter."""


@dataclass(frozen=True, slots=True)
class Spent:
    """The time of a verification in milliseconds, split into the replica's queue, its forwards, and
    everything else that the orchestrator waited for, such as failed attempts."""

    queue_ms: float
    forward_ms: float
    overhead_ms: float

    @classmethod
    def of(cls, total_ms: float, queue_ms: float, forward_ms: float) -> Spent:
        """Count the rest of ``total_ms`` as overhead, at most ten times the acceptable one, so that
        a single hung call cannot dominate the mean."""
        overhead_ms = max(0.0, total_ms - queue_ms - forward_ms)
        return cls(queue_ms, forward_ms, min(overhead_ms, 10 * MAX_OVERHEAD_MS))

    @property
    def bearable_share(self) -> float:
        """The acceptable time divided by the actual one; below 1 the verification was too slow."""
        bearable_ms = max(MAX_FORWARDS * self.forward_ms, MIN_QUEUE_MS) + self.forward_ms
        replica_ms = self.queue_ms + self.forward_ms
        return min(
            bearable_ms / max(1e-3, replica_ms), MAX_OVERHEAD_MS / max(1e-3, self.overhead_ms)
        )


class Room:
    """The number of answers that can run concurrently: at least one per replica.

    The number is decided anew after every ``WINDOW`` verifications.
    """

    def __init__(self) -> None:
        self._size: float | None = None
        self._spent: list[Spent] = []
        self._num_running: list[int] = []
        self._most = inf
        """Upper bound that full queues have set since the last decision."""

    def size(self, num_replicas: int) -> int:
        """Return how many answers can run concurrently, at least one per replica."""
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
        """Return the new size, from the means of the window: Little's law is about means."""
        size, num_running = self.size(num_replicas), fmean(self._num_running)
        share = Spent(
            fmean(spent.queue_ms for spent in self._spent),
            fmean(spent.forward_ms for spent in self._spent),
            fmean(spent.overhead_ms for spent in self._spent),
        ).bearable_share
        if share < 1:
            return num_running * share
        # If the room was not used up, low latencies do not show that more answers would fit.
        grows = share > SPARE and max(self._num_running) >= size
        return GROWTH * size + 1 if grows else size


@dataclass(frozen=True, slots=True)
class Overload:
    """The numbers that explain why an answer may not begin now."""

    num_running: int
    num_waiting: int
    size: int
    expected_wait_s: float
    retry_after_s: float

    def error(self) -> ResourceExhaustedStatus:
        """Return the error for the answer's client."""
        return ResourceExhaustedStatus(
            "OVERLOADED",
            f"{self.num_running} answers are running and {self.num_waiting} are waiting: "
            f"another would wait about {self.expected_wait_s:.1f} s",
            {
                "num_running": str(self.num_running),
                "max_running": str(self.size),
                "num_waiting": str(self.num_waiting),
                "expected_wait_ms": str(round(self.expected_wait_s * 1e3)),
            },
            retry_after_s=self.retry_after_s,
        )


class Admission:
    """Counts the running answers and decides whether another begins, waits or is refused."""

    def __init__(self, max_wait_s: float = MAX_WAIT_SECONDS) -> None:
        self.room = Room()
        self.watcher: Callable[[], None] = lambda: None
        """Called when there may be more room."""
        self.num_running = 0
        self.num_tokens_in_flight = 0
        """Tokens sent in verifications that are under way."""
        self._max_wait_s = max_wait_s
        self._shares: deque[float] = deque(maxlen=WINDOW)
        """Seconds between two ends of answers, estimated from each of the latest answers."""

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
        """Return whether another answer may begin now."""
        factor = RESUMED if resumed else 1.0
        return self.num_running < factor * self.room.size(num_replicas)

    def expected_wait_s(self, num_before: int) -> float:
        """Return the expected wait behind ``num_before`` answers; 0 until one has finished."""
        return (num_before + 1) * median(self._shares) if self._shares else 0.0

    def patience_s(self, time_left_s: float) -> float:
        """Return the longest wait of an answer with ``time_left_s`` until its deadline."""
        return min(self._max_wait_s, time_left_s)

    def may_wait(self, num_before: int, num_waiting: int, time_left_s: float) -> bool:
        """Return whether an answer behind ``num_before`` others is expected to begin in time and
        the queue of ``num_waiting`` has room for it."""
        in_time = self.expected_wait_s(num_before) < self.patience_s(time_left_s)
        return in_time and num_waiting < MAX_WAITING

    def overload(self, num_replicas: int, num_waiting: int, wait_s: float, die: float) -> Overload:
        """Return the refusal of an answer that would wait, or has waited, ``wait_s``.

        The client should retry when the wait will be acceptable, with jitter from ``die``, drawn
        from [0, 1)."""
        come_s = max(MIN_RETRY_SECONDS, wait_s - self._max_wait_s)
        size = self.room.size(num_replicas)
        return Overload(self.num_running, num_waiting, size, wait_s, come_s * (0.5 + die))

    def began(self) -> None:
        """Count an answer that begins."""
        self.num_running += 1

    def gave_up(self) -> None:
        """Take back ``began`` for an answer that was admitted but did nothing."""
        self.num_running -= 1

    def ended(self, seconds: float, num_at_first: int, num_replicas: int) -> None:
        """Record that an answer ended after ``seconds``; ``num_at_first`` ran when it began."""
        num_beside = (num_at_first + self.num_running) / 2
        # Had there been more answers, up to the room, they would have finished in the same time.
        self._shares.append(seconds / max(num_beside, self.room.size(num_replicas)))
        self.num_running -= 1
