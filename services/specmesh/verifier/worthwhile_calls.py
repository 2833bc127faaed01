"""The number of calls that a forward should have, learnt from forwards of different sizes."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from math import inf
from statistics import fmean, linear_regression

from specmesh.inference.model import ForwardSize

LEAST_CALLS = 16
"""Calls that a forward may always have."""
MOST_CALLS = 1 << 16
"""A bound from which on there might as well be none: no load reaches it."""
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
INTERVAL = 8
"""The fewest forwards between two estimates."""
INTERVAL_MS = 50.0
"""The least time of forwards between two estimates, one of which takes a tenth of a millisecond."""


class WorthwhileCalls:
    """The number of calls that a forward of this replica should have at most.

    The time of a forward is taken to be a + c n for n calls, which is flat (c = 0) while a
    processor has units to spare, and proportional (a = 0) once it has not: more calls then only
    make each slower. Sizes between two powers of two count as one, and each as much as another, so
    that what a few calls took is remembered while there are many: forwards of a load all have about
    the same size, and tell noise from c badly.
    """

    def __init__(self) -> None:
        self._by_size: dict[int, deque[tuple[int, float]]] = {}
        self._quickest: dict[int, tuple[float, float]] = {}
        self._changed: set[int] = set()
        """Sizes of which there are forwards since the last estimate."""
        self._latest = ForwardSize()
        self._latest_ms = inf
        self._num_forwards = 0
        """Forwards since the last estimate."""
        self._forwards_ms = 0.0
        """Their time."""
        self._most = 0

    def learn(self, forward: ForwardSize, milliseconds: float) -> int:
        """Return how many calls a forward should have, 0 if no bound is known, after one of the
        calls of ``forward`` took ``milliseconds``. All calls of a forward have the same object, and
        the quickest counts: the others also waited, or read prompts."""
        if forward is self._latest:
            self._latest_ms = min(self._latest_ms, milliseconds)
        else:
            self._record(self._latest.num_calls, self._latest_ms)
            self._latest, self._latest_ms = forward, milliseconds
        return self._most

    def _record(self, num_calls: int, milliseconds: float) -> None:
        if not num_calls:
            return
        size = num_calls.bit_length()
        self._by_size.setdefault(size, deque(maxlen=NUM_FORWARDS)).append((num_calls, milliseconds))
        self._changed.add(size)
        self._num_forwards += 1
        self._forwards_ms += milliseconds
        if self._num_forwards >= INTERVAL and self._forwards_ms >= INTERVAL_MS:
            self._most = self._estimate()
            self._num_forwards, self._forwards_ms = 0, 0.0

    def _estimate(self) -> int:
        for size in self._changed:
            if len(self._by_size[size]) >= LEAST_FORWARDS:
                self._quickest[size] = _quickest(self._by_size[size])
        self._changed.clear()
        if len(self._quickest) < 2:  # noqa: PLR2004 - a line needs two points
            return 0
        each_ms, fixed_ms = linear_regression(*zip(*self._quickest.values(), strict=True))
        if each_ms <= 0:
            return 0
        most = MAX_CALLS_SHARE / (1 - MAX_CALLS_SHARE) * fixed_ms / each_ms
        return max(LEAST_CALLS, round(most)) if most < MOST_CALLS else 0


def _quickest(forwards: Collection[tuple[int, float]]) -> tuple[float, float]:
    """Return the means of the calls and of the milliseconds of the quickest ``forwards``."""
    in_order = sorted(forwards, key=lambda forward: forward[1] / forward[0])
    count = max(1, round(QUICKEST_SHARE * len(in_order)))
    calls, milliseconds = map(fmean, zip(*in_order[:count], strict=True))
    return calls, milliseconds
