"""Quantiles of the latest values."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque


class SlidingWindow:
    """The latest ``size`` values, kept sorted, so that a quantile takes constant time."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._latest: deque[float] = deque()
        self._sorted: list[float] = []

    def add(self, value: float) -> None:
        """Add a value, and drop the oldest if there are too many."""
        if len(self._latest) == self._size:
            del self._sorted[bisect_left(self._sorted, self._latest.popleft())]
        self._latest.append(value)
        insort(self._sorted, value)

    def at(self, quantile: float) -> float:
        """Return the value at ``quantile``, in [0, 1], rounded down to one of the values."""
        return self._sorted[int(quantile * (len(self._sorted) - 1))]

    @property
    def median(self) -> float:
        """The median, computed as by ``statistics.median``."""
        half, odd = divmod(len(self._sorted), 2)
        if odd:
            return self._sorted[half]
        return (self._sorted[half - 1] + self._sorted[half]) / 2
