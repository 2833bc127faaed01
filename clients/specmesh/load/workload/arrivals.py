"""When conversations begin. Open loop: times that don't depend on how fast the server is."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import ClassVar, Protocol


class Arrivals(Protocol):
    """An open loop."""

    kind: ClassVar[str]
    """The name of the class in reports."""

    def times(self, rng: Random) -> Iterator[float]:
        """Seconds from the start at which conversations begin, in order; most are endless."""
        ...


@dataclass(frozen=True, slots=True)
class ConstantArrivals:
    """One every ``1 / rate`` seconds."""

    kind: ClassVar[str] = "constant"

    rate: float

    def times(self, rng: Random) -> Iterator[float]:  # noqa: ARG002
        """Evenly spaced, the first after one interval."""
        return (number / self.rate for number in itertools.count(1))


@dataclass(frozen=True, slots=True)
class Poisson:
    """Independent of one another, ``rate`` a second: what many users together look like."""

    kind: ClassVar[str] = "poisson"

    rate: float

    def times(self, rng: Random) -> Iterator[float]:
        """With exponential gaps."""
        gaps = (rng.expovariate(self.rate) for _ in itertools.repeat(None))
        return itertools.accumulate(gaps)


@dataclass(frozen=True, slots=True)
class Gamma:
    """In bursts: gaps of a gamma distribution whose coefficient of variation is ``burstiness``.

    1 is Poisson, 0 would be constant; the higher, the denser the bursts and the longer the pauses.
    """

    kind: ClassVar[str] = "gamma"

    rate: float
    burstiness: float

    def times(self, rng: Random) -> Iterator[float]:
        """With gamma gaps."""
        shape = 1 / self.burstiness**2
        scale = 1 / (self.rate * shape)
        gaps = (rng.gammavariate(shape, scale) for _ in itertools.repeat(None))
        return itertools.accumulate(gaps)


@dataclass(frozen=True, slots=True)
class Ramp:
    """Poisson at a rate that goes from ``first`` to ``last`` over ``over_s`` seconds, evenly, and
    stays there."""

    kind: ClassVar[str] = "ramp"

    first: float
    last: float
    over_s: float

    def times(self, rng: Random) -> Iterator[float]:
        """By inverting the expected number of arrivals: a unit Poisson process on its axis."""
        expected = 0.0
        while True:
            expected += rng.expovariate(1.0)
            yield self._time_of(expected)

    def _time_of(self, expected: float) -> float:
        """When ``expected`` arrivals have come in the mean."""
        on_ramp = (self.first + self.last) / 2 * self.over_s
        if expected >= on_ramp:
            return self.over_s + (expected - on_ramp) / self.last
        slope = (self.last - self.first) / self.over_s
        # The positive root of slope/2 t² + first t = expected, in the form that bears slope 0.
        root = math.sqrt(self.first**2 + 2 * slope * expected)
        return 2 * expected / (self.first + root)


@dataclass(frozen=True, slots=True)
class ReplayedArrivals:
    """At given ``seconds``, ascending from 0, ``speed`` times as fast."""

    kind: ClassVar[str] = "replay"

    seconds: Sequence[float]
    speed: float = 1.0

    def times(self, rng: Random) -> Iterator[float]:  # noqa: ARG002
        """The given ones; they end."""
        return (each / self.speed for each in self.seconds)


@dataclass(frozen=True, slots=True)
class Users:
    """Closed loop: ``count`` users, each of whom waits for an answer, thinks for ``think_s``
    seconds in the mean (exponential), and asks again."""

    kind: ClassVar[str] = "users"

    count: int
    think_s: float = 0.0

    def think(self, rng: Random) -> float:
        """One pause in seconds."""
        return rng.expovariate(1 / self.think_s) if self.think_s else 0.0
