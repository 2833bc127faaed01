"""Quantiles of the latest values."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque


class SlidingWindow:
    """The latest ``size`` values, kept in order, so that a quantile costs nothing."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._latest: deque[float] = deque()
        self._in_order: list[float] = []

    def add(self, value: float) -> None:
        """Take a value in, and drop the oldest if there are too many."""
        if len(self._latest) == self._size:
            del self._in_order[bisect_left(self._in_order, self._latest.popleft())]
        self._latest.append(value)
        insort(self._in_order, value)

    def at(self, quantile: float) -> float:
        """The value that this share [0, 1] of the values is not above, at least one."""
        return self._in_order[int(quantile * (len(self._in_order) - 1))]

    @property
    def median(self) -> float:
        """As ``statistics.median``."""
        half, odd = divmod(len(self._in_order), 2)
        if odd:
            return self._in_order[half]
        return (self._in_order[half - 1] + self._in_order[half]) / 2
