"""The room: how many answers an orchestrator runs concurrently, learnt from their verifications.

It settles where replicas are busy and nobody waits for long. Both follow from what each response
says about the replica, which other orchestrators use as well: how long the call queued, how long
the forward took, how many calls shared it and how many should. By Little's law, a time that is
``share`` times the measured one takes ``share`` times as many answers. No clock: times are passed
in.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from statistics import fmean
from typing import NamedTuple

FIRST_PER_REPLICA = 16
"""Answers that run per replica before anything has been measured."""
MAX_FORWARDS = 2.0
"""Longest acceptable queue at a replica, in forwards. One keeps replicas busy; with more, more
answers share the replicas and each gets slower."""
MIN_QUEUE_MS = 50.0
"""Wait at a replica that is acceptable however short a forward is."""
MAX_OVERHEAD_MS = 250.0
"""Acceptable time of a verification outside its replica; a longer time means that the orchestrator
or the network is overloaded."""
SPARE = 1.25
"""The room grows when waits would allow this many times as many answers. Where forwards have too
many calls, it shrinks until they could have this many times as many: if they had just enough, an
orchestrator with few answers, which decides seldom, would never see them with less, and stay small
beside another."""
GROWTH_PER_REPLICA = 4
"""What the room grows by. It grows by a number and shrinks to a share, by which the rooms of
orchestrators that share replicas become equal."""
SHRINKAGE = 0.75
"""The room shrinks to this share of the running answers when no replica has room for a call."""
MAX_SHRINKAGE = 0.5
"""The least that one decision leaves, so that one pause of the machine does not empty the mesh."""
WINDOW = 32
"""Fewest verifications between two decisions."""
ROUNDS = 2
"""Verifications of each running answer between two decisions, so that each sees the effect of the
one before."""
FORGOTTEN_SECONDS = 2.0
"""After this time in which the room was not used up, it is as large as at first: what was learnt
may no longer hold."""


class Spent(NamedTuple):
    """The time of a verification in milliseconds, split into the replica's queue, its forwards, and
    everything else that the orchestrator waited for, such as failed attempts."""

    queue_ms: float
    forward_ms: float
    overhead_ms: float
    num_calls: int = 0
    """The calls that shared its forward, of all orchestrators; 0 if that is unknown."""
    num_worthwhile_calls: int = 0
    """The most that should share one; 0 if the replica knows no such bound."""

    @classmethod
    def of(
        cls,
        total_ms: float,
        queue_ms: float,
        forward_ms: float,
        num_calls: int = 0,
        num_worthwhile_calls: int = 0,
    ) -> Spent:
        """Count the rest of ``total_ms`` as overhead, at most ten times the acceptable one, so that
        a single hung call cannot dominate the mean."""
        overhead_ms = min(max(0.0, total_ms - queue_ms - forward_ms), 10 * MAX_OVERHEAD_MS)
        return cls(queue_ms, forward_ms, overhead_ms, num_calls, num_worthwhile_calls)

    @classmethod
    def mean(cls, window: Iterable[Spent]) -> Spent:
        """Return the means of all times: Little's law is about means."""
        times = ((each.queue_ms, each.forward_ms, each.overhead_ms) for each in window)
        queue_ms, forward_ms, overhead_ms = map(fmean, zip(*times, strict=True))
        return cls(queue_ms, forward_ms, overhead_ms)

    @property
    def bearable_share(self) -> float:
        """The acceptable time divided by the actual one; below 1 the verification was too slow."""
        bearable_ms = max(MAX_FORWARDS * self.forward_ms, MIN_QUEUE_MS) + self.forward_ms
        replica_ms = self.queue_ms + self.forward_ms
        return min(
            bearable_ms / max(1e-3, replica_ms), MAX_OVERHEAD_MS / max(1e-3, self.overhead_ms)
        )


class Room:
    """The number of answers that can run concurrently: at least one per replica."""

    def __init__(self) -> None:
        self._learnt = 0.0
        self._learnt_at = -inf
        self._spent: list[Spent] = []
        self._num_running: list[int] = []
        self._most = inf
        """Upper bound that full queues have set since the last decision."""

    def size(self, num_replicas: int, now: float) -> int:
        """Return how many answers can run concurrently, at least one per replica."""
        least = max(1, num_replicas)
        return max(least, int(self._learnt if self._knows(now) else FIRST_PER_REPLICA * least))

    def answered(
        self, num_running: int, num_replicas: int, spent: Spent, now: float, times: int = 1
    ) -> None:
        """Record as many verifications while ``num_running`` answers ran."""
        self._spent += [spent] * times
        self._num_running += [num_running] * times
        size = self.size(num_replicas, now)
        if num_running >= size and self._knows(now):
            self._learnt_at = now  # what is being used is not forgotten
        if len(self._spent) >= max(WINDOW, ROUNDS * num_running):
            self._decide(size, max(1, num_replicas), now)
            self._spent.clear()
            self._num_running.clear()
            self._most = inf

    def refused(self, num_running: int, now: float) -> None:
        """Record that no replica had room for a call while ``num_running`` answers ran."""
        self._most = min(self._most, SHRINKAGE * num_running)
        self._learnt = min(self._learnt, self._most) if self._knows(now) else self._most
        self._learnt_at = now

    def _knows(self, now: float) -> bool:
        return now - self._learnt_at < FORGOTTEN_SECONDS

    def _decide(self, size: int, num_replicas: int, now: float) -> None:
        """Learn a new size from the means of the window, if they show anything: where the room was
        not used up, short waits do not show that more answers would fit."""
        bearable, worthwhile = Spent.mean(self._spent).bearable_share, self._worthwhile_share()
        if worthwhile < 1:
            worthwhile /= SPARE
        share = min(bearable, worthwhile)
        is_used_up = max(self._num_running) >= size
        if share < 1:
            learnt = fmean(self._num_running) * max(share, MAX_SHRINKAGE)
        elif is_used_up:
            learnt = size + (GROWTH_PER_REPLICA * num_replicas if bearable > SPARE else 0)
        else:
            return
        self._learnt, self._learnt_at = min(learnt, self._most), now

    def _worthwhile_share(self) -> float:
        """The calls that a forward should have divided by those that it has."""
        shares = [
            each.num_calls / each.num_worthwhile_calls
            for each in self._spent
            if each.num_calls and each.num_worthwhile_calls
        ]
        return 1 / fmean(shares) if shares else inf
