"""The search for the highest rate that meets the objectives, without clock or I/O."""

from __future__ import annotations

from math import sqrt

FACTOR = 2.0
LOWEST_SHARE = 1 / 64
"""Lowest rate that is tried, as a share of the first one."""


class Bisection:
    """Doubles the rate until one is missed (or halves it until one is met), then bisects. It
    bisects the ratio of the two until they are at most ``within`` apart, such as 0.05 for 5 %."""

    def __init__(self, first_rate: float, within: float) -> None:
        self._first_rate = first_rate
        self._within = within
        self.highest_met: float | None = None
        self.lowest_missed: float | None = None

    @property
    def next_rate(self) -> float | None:
        """Return the rate to try next; None once the search has ended."""
        met, missed = self.highest_met, self.lowest_missed
        if met is None and missed is None:
            return self._first_rate
        if missed is None:
            assert met is not None
            return met * FACTOR
        if met is None:
            lower = missed / FACTOR
            return lower if lower >= self._first_rate * LOWEST_SHARE else None
        return None if missed <= met * (1 + self._within) else sqrt(met * missed)

    def tried(self, rate: float, *, met: bool) -> None:
        """Record whether ``rate`` met the objectives. Noise may make a higher rate meet them and a
        lower one miss them; then the lower one counts."""
        if met:
            self.highest_met = rate
        else:
            self.lowest_missed = rate
