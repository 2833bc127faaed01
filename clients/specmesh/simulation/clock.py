"""Virtual time, in which the clock jumps from one event to the next without waiting."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True)
class Timer:
    """An action to run later, unless it is cancelled."""

    action: Callable[[], None]
    cancelled: bool = False


class Clock:
    """A queue of timers; ``now``, in seconds, is when the last one fired, and never decreases.

    Timers set for the same time fire in the order in which they were set.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._timers: list[tuple[float, int, Timer]] = []
        self._number = 0

    def after(self, delay_s: float, action: Callable[[], None]) -> Timer:
        """Run ``action`` once ``delay_s`` (not negative) have passed."""
        self._number += 1
        timer = Timer(action)
        heapq.heappush(self._timers, (self.now + delay_s, self._number, timer))
        return timer

    def run(self, done: Callable[[], bool]) -> None:
        """Fire timers until ``done``. Raises ``RuntimeError`` if none is left before that."""
        while not done():
            if not self._timers:
                raise RuntimeError("no timers are left, but the simulation is not done")
            self.now, _, timer = heapq.heappop(self._timers)
            if not timer.cancelled:
                timer.action()
