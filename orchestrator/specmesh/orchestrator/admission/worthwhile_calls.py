"""The number of calls that a forward should have, learnt from forwards of different sizes."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from math import inf
from statistics import fmean, linear_regression

LEAST_CALLS = 16
"""Calls that a forward may always have."""
MAX_CALLS_SHARE = 2 / 3
"""Largest part of a forward's time that depends on its number of calls. Beyond it, twice as many
calls in a forward bring less than a third more calls per second."""
NUM_FORWARDS = 256
"""Latest forwards of about one size that are remembered."""
LEAST_FORWARDS = 4
"""Forwards of about one size before it counts."""
QUICKEST_SHARE = 0.25
"""The share of these that counts: prompts that are read, pauses and other programs only make a
forward longer."""


class CallTimes:
    """The time of forwards by their number of calls.

    It is taken to be a + c n for n calls, which is flat (c = 0) while a processor has units to
    spare, and proportional (a = 0) once it has not: more calls then only make each slower. Sizes
    between two powers of two count as one, and each as much as another, so that what a few calls
    took is remembered while there are many: forwards of a load all have about the same size, and
    tell noise from c badly.
    """

    def __init__(self) -> None:
        self._by_size: dict[int, _Size] = {}

    def add(self, num_calls: int, milliseconds: float, num_own: int) -> None:
        """Record what one of the ``num_calls`` of a forward, at least one, says that it took. Some
        ``num_own`` of them, at least one, will say so."""
        size = self._by_size.setdefault(num_calls.bit_length(), _Size())
        size.add(num_calls, milliseconds, min(num_calls, num_own))

    def worthwhile_calls(self) -> float:
        """Return how many calls a forward should have at most."""
        quickest = [
            size.quickest()
            for size in self._by_size.values()
            if len(size.forwards) >= LEAST_FORWARDS
        ]
        if len(quickest) < 2:  # noqa: PLR2004 - a line needs two points
            return inf
        each_ms, fixed_ms = linear_regression(*zip(*quickest, strict=True))
        if each_ms <= 0:
            return inf
        most = MAX_CALLS_SHARE / (1 - MAX_CALLS_SHARE) * fixed_ms / each_ms
        return max(float(LEAST_CALLS), most)


@dataclass(slots=True)
class _Size:
    """Forwards of about one size, each with its number of calls and its milliseconds."""

    forwards: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=NUM_FORWARDS))
    _part: float = 1.0
    """The part of another forward that calls have told of."""

    def add(self, num_calls: int, milliseconds: float, num_own: int) -> None:
        """Record one of ``num_own`` calls that tell of the same time. One of them counts."""
        self._part += 1 / num_own
        if self._part > 1:
            self._part -= 1
            self.forwards.append((num_calls, milliseconds))

    def quickest(self) -> tuple[float, float]:
        """Return the means of the calls and of the milliseconds of the quickest forwards."""
        in_order = sorted(self.forwards, key=lambda forward: forward[1] / forward[0])
        count = max(1, round(QUICKEST_SHARE * len(in_order)))
        calls, milliseconds = map(fmean, zip(*in_order[:count], strict=True))
        return calls, milliseconds
