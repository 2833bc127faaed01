"""How long the mesh takes, as seen from here: running medians, shared by all requests."""

from __future__ import annotations

from collections import defaultdict, deque
from statistics import median

WINDOW = 64
"""How many of the latest calls count."""


class RunningMedian:
    """The median of the latest values, to two digits, so that it changes only when it matters."""

    def __init__(self) -> None:
        self.value: float | None = None
        """None before the first."""
        self._latest: deque[float] = deque(maxlen=WINDOW)

    def add(self, value: float) -> None:
        """Take a value in."""
        self._latest.append(value)
        self.value = float(f"{median(self._latest):.1e}")


class Latencies:
    """Seconds of one verification, and of one drafted level by the drafter's model."""

    def __init__(self) -> None:
        self.target_s = RunningMedian()
        self._drafter_s: defaultdict[str, RunningMedian] = defaultdict(RunningMedian)

    def drafter_s(self, kind: str) -> RunningMedian:
        """Of the drafters that serve the model ``kind``."""
        return self._drafter_s[kind]
