"""The number of calls that a forward should have, learnt from forwards of different sizes."""

from __future__ import annotations

from collections import deque
from math import inf
from statistics import fmean, linear_regression

LEAST_CALLS = 16
"""Calls that a forward may always have."""
MAX_CALLS_SHARE = 2 / 3
"""Largest part of a forward's time that depends on its number of calls. Beyond it, twice as many
calls in a forward bring less than a third more calls per second."""
NUM_FORWARDS = 64
"""Latest forwards of about one size that count."""


class CallTimes:
    """The time of forwards by their number of calls.

    It is taken to be a + c n for n calls, which is flat (c = 0) while a processor has units to
    spare, and proportional (a = 0) once it has not: more calls then only make each slower. Sizes
    between two powers of two count as one, and each as much as another, so that what a few calls
    took is remembered while there are many: forwards of a load all have about the same size, and
    tell noise from c badly.
    """

    def __init__(self) -> None:
        self._by_size: dict[int, deque[tuple[int, float]]] = {}

    def add(self, num_calls: int, milliseconds: float) -> None:
        """Record a forward of ``num_calls``, at least one."""
        size = num_calls.bit_length()
        known = self._by_size.setdefault(size, deque(maxlen=NUM_FORWARDS))
        known.append((num_calls, milliseconds))

    def worthwhile_calls(self) -> float:
        """Return how many calls a forward should have at most."""
        if len(self._by_size) < 2:  # noqa: PLR2004 - a line needs two points
            return inf
        means = [tuple(map(fmean, zip(*known, strict=True))) for known in self._by_size.values()]
        each_ms, fixed_ms = linear_regression(*zip(*means, strict=True))
        if each_ms <= 0:
            return inf
        most = MAX_CALLS_SHARE / (1 - MAX_CALLS_SHARE) * fixed_ms / each_ms
        return max(float(LEAST_CALLS), most)
