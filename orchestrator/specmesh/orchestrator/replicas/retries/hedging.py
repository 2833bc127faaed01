"""Hedging: a late call is sent to a second replica as well, and the first answer wins (Dean &
Barroso, "The Tail at Scale", 2013).

A budget, as in gRPC's proposal A6, keeps hedges from making an overload worse.
"""

from __future__ import annotations

HEDGES_PER_CALL = 0.05
"""Added to the budget by each answered call."""
MAX_HEDGES = 10.0
"""Most hedges that the budget can hold."""


class HedgeBudget:
    """Limits hedges to ``MAX_HEDGES`` plus ``HEDGES_PER_CALL`` for each answered call."""

    def __init__(self) -> None:
        self._left = MAX_HEDGES

    def spend(self) -> bool:
        """Take one hedge from the budget and return whether there was one."""
        if self._left < 1:
            return False
        self._left -= 1
        return True

    def earn(self) -> None:
        """Add the budget that an answered call earns."""
        self._left = min(MAX_HEDGES, self._left + HEDGES_PER_CALL)
