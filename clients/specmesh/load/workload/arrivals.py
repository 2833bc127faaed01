"""The times at which conversations begin. In an open loop they don't depend on how fast the server
is."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import ClassVar, Protocol

_SHORTEST_PAUSE_S = 0.01
_LONGEST_PAUSE_S = 1.0
_MAX_DOUBLINGS = 7


class Arrivals(Protocol):
    """The arrival process of an open loop."""

    kind: ClassVar[str]
    """The name of the class in reports."""

    def times(self, rng: Random) -> Iterator[float]:
        """Yield the start times of conversations in ascending order, in seconds from the start of
        the run. Most processes never end."""
        ...


@dataclass(frozen=True, slots=True)
class ConstantArrivals:
    """Evenly spaced arrivals, one every ``1 / rate`` seconds."""

    kind: ClassVar[str] = "constant"

    rate: float

    def times(self, rng: Random) -> Iterator[float]:  # noqa: ARG002
        """Yield evenly spaced times, the first after one interval."""
        return (number / self.rate for number in itertools.count(1))


@dataclass(frozen=True, slots=True)
class Poisson:
    """Independent arrivals, ``rate`` per second, as many users together produce."""

    kind: ClassVar[str] = "poisson"

    rate: float

    def times(self, rng: Random) -> Iterator[float]:
        """Yield times with exponential gaps."""
        gaps = (rng.expovariate(self.rate) for _ in itertools.repeat(None))
        return itertools.accumulate(gaps)


@dataclass(frozen=True, slots=True)
class Gamma:
    """Bursts: gaps with a gamma distribution whose coefficient of variation is ``burstiness``.

    A ``burstiness`` of 1 is Poisson, 0 would be constant. The higher it is, the denser the bursts
    and the longer the pauses.
    """

    kind: ClassVar[str] = "gamma"

    rate: float
    burstiness: float

    def times(self, rng: Random) -> Iterator[float]:
        """Yield times with gamma-distributed gaps, the first of which began before the run.

        If each run began with an arrival, bursts would offer more than ``rate``. A time falls into
        a gap with a chance proportional to its length, which is another gamma distribution, and
        evenly within it.
        """
        shape = 1 / self.burstiness**2
        scale = 1 / (self.rate * shape)
        first_s = rng.random() * rng.gammavariate(shape + 1, scale)
        gaps = (rng.gammavariate(shape, scale) for _ in itertools.repeat(None))
        return itertools.accumulate(gaps, initial=first_s)


@dataclass(frozen=True, slots=True)
class Ramp:
    """Poisson arrivals whose rate changes linearly from ``first`` to ``last`` in ``over_s``
    seconds, and then stays there."""

    kind: ClassVar[str] = "ramp"

    first: float
    last: float
    over_s: float

    def times(self, rng: Random) -> Iterator[float]:
        """Yield times by mapping a unit Poisson process through the inverse of the expected number
        of arrivals."""
        expected = 0.0
        while True:
            expected += rng.expovariate(1.0)
            yield self._time_of(expected)

    def _time_of(self, expected: float) -> float:
        """Return the time by which ``expected`` arrivals are expected."""
        on_ramp = (self.first + self.last) / 2 * self.over_s
        if expected >= on_ramp:
            return self.over_s + (expected - on_ramp) / self.last
        slope = (self.last - self.first) / self.over_s
        # The positive root of slope/2 t² + first t = expected, in a form that allows slope 0.
        root = math.sqrt(self.first**2 + 2 * slope * expected)
        return 2 * expected / (self.first + root)


@dataclass(frozen=True, slots=True)
class ReplayedArrivals:
    """Arrivals at the given ``seconds``, ascending from 0, replayed ``speed`` times as fast."""

    kind: ClassVar[str] = "replay"

    seconds: Sequence[float]
    speed: float = 1.0

    def times(self, rng: Random) -> Iterator[float]:  # noqa: ARG002
        """Yield the given times, and end."""
        return (each / self.speed for each in self.seconds)


@dataclass(frozen=True, slots=True)
class Users:
    """A closed loop of ``count`` users. Each waits for an answer, thinks for ``think_s`` seconds on
    average (exponential), and asks again."""

    kind: ClassVar[str] = "users"

    count: int
    think_s: float = 0.0

    def think(self, rng: Random) -> float:
        """Draw one pause, in seconds."""
        return rng.expovariate(1 / self.think_s) if self.think_s else 0.0


def pause_after(num_failures: int) -> float:
    """Return the seconds that a user of a closed loop waits after so many failures in a row.

    Without the pause users whose server is gone would fail thousands of times a second.
    """
    if not num_failures:
        return 0.0
    doublings = min(num_failures - 1, _MAX_DOUBLINGS)
    return min(_LONGEST_PAUSE_S, _SHORTEST_PAUSE_S * 2.0**doublings)
