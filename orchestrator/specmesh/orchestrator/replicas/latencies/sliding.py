"""Quantiles of the latest values."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Collection

WINDOW = 64
"""The number of latest values that a running median is of."""
MANY = 6
"""Values from which on a window is sorted anew."""


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

    def extend(self, values: Collection[float]) -> None:
        """Add ``values`` in their order. Sorting anew takes less than to insert many."""
        if len(values) < MANY:
            for value in values:
                self.add(value)
            return
        self._latest.extend(values)
        for _ in range(len(self._latest) - self._size):
            self._latest.popleft()
        self._sorted = sorted(self._latest)

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


class RunningMedian:
    """The median of the latest ``WINDOW`` values, rounded to two digits to hide small changes."""

    def __init__(self) -> None:
        self._window = SlidingWindow(WINDOW)
        self._new: deque[float] = deque(maxlen=WINDOW)
        """Values since it was last asked for: with many answers they come more often."""
        self._value: float | None = None

    @property
    def value(self) -> float | None:
        """The median; None before the first value."""
        if self._new:
            self._window.extend(self._new)
            self._new.clear()
            self._value = float(f"{self._window.median:.1e}")
        return self._value

    def add(self, value: float) -> None:
        """Add a value."""
        self._new.append(value)
