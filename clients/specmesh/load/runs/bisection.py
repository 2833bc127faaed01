"""The search for the highest rate that is good enough. No clock, no I/O."""

from __future__ import annotations

from math import sqrt

FACTOR = 2.0
LOWEST_SHARE = 1 / 64
"""Of the first rate: below it nothing is tried."""


class Bisection:
    """Doubles the rate until one is missed (or halves it until one is met), then halves the gap,
    as ratios, until it is at most ``within``, such as 0.05 for 5 %."""

    def __init__(self, first_rate: float, within: float) -> None:
        self._first_rate = first_rate
        self._within = within
        self.highest_met: float | None = None
        self.lowest_missed: float | None = None

    @property
    def next_rate(self) -> float | None:
        """The rate to try; None when there is nothing left to find out."""
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
        """Note how ``rate`` went. Where luck has a higher one met and a lower one missed, the
        lower one counts."""
        if met:
            self.highest_met = rate
        else:
            self.lowest_missed = rate
