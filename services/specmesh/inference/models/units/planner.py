"""Decides how work is divided, from what was measured at load and what units take while serving.

Pure: it has no clock, and the same measurements give the same shares.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from statistics import median
from typing import NamedTuple, Protocol

from specmesh.inference.models.units.shares import Measured, Shares, best_shares

WINDOW = 16
"""How many forwards are looked at together: one that was interrupted by other work decides
nothing."""
HYSTERESIS = 0.1
"""By how much the units' speeds must have changed against each other before anything is divided
anew. Less is noise, and gains less than a twentieth."""
FORGIVENESS = 0.99
"""What is left after each forward of the slowness of a unit that had no part in it: so it is tried
again in time."""


class Work(NamedTuple):
    """A kind of work: linear layers from ``features`` to ``columns``, or, with neither, attention
    to committed KV."""

    features: int = 0
    columns: int = 0


ATTENTION = Work()


class Plan(Protocol):
    """Says how work is divided."""

    def shares(self, work: Work, size: int) -> Shares:
        """For ``size`` tokens of a linear layer, or keys of attention."""
        ...

    def expected_s(self, work: Work, size: int, shares: Shares) -> tuple[float, ...]:
        """The seconds that each unit's part would take, had nothing changed since the start."""
        ...

    def observe(self, taken_s: Sequence[float], expected_s: Sequence[float]) -> bool:
        """Note what each unit took for its parts of a forward; True if shares have changed."""
        ...


class FixedPlan:
    """The same shares of all work, for experiments."""

    def __init__(self, shares: Shares) -> None:
        self._shares = shares

    def shares(self, work: Work, size: int) -> Shares:  # noqa: ARG002
        """Those it was made with."""
        return self._shares

    def expected_s(self, work: Work, size: int, shares: Shares) -> tuple[float, ...]:  # noqa: ARG002
        """Nothing is expected."""
        return (0.0,) * len(shares)

    def observe(self, taken_s: Sequence[float], expected_s: Sequence[float]) -> bool:  # noqa: ARG002
        """Never changes."""
        return False


class Planner:
    """A ``Plan`` by measurements ``{work: {size: measured}}``, that follows the units' speeds."""

    def __init__(self, measured: Mapping[Work, Mapping[int, Measured]], num_units: int) -> None:
        self.measured = measured
        self.slowness = (1.0,) * num_units
        """How many times slower each unit is taken to be than it was when measured."""
        self._latest = list(self.slowness)
        self._seen = [deque[float](maxlen=WINDOW) for _ in self.slowness]

    def shares(self, work: Work, size: int) -> Shares:
        """Those with which the units end together, by the measurement of the nearest size."""
        return best_shares(self._nearest(work, size).slowed(self.slowness))

    def expected_s(self, work: Work, size: int, shares: Shares) -> tuple[float, ...]:
        """By the nearest size: what that gets wrong it gets wrong for all units alike."""
        costs = self._nearest(work, size).costs
        return tuple(cost.whole_s * share for cost, share in zip(costs, shares, strict=True))

    def observe(self, taken_s: Sequence[float], expected_s: Sequence[float]) -> bool:
        """Compare, over the last forwards, and change shares if speeds have."""
        for unit, seen in enumerate(self._seen):
            if expected_s[unit]:
                seen.append(taken_s[unit] / expected_s[unit])
                self._latest[unit] = median(seen)
            else:
                self._latest[unit] = 1 + (self._latest[unit] - 1) * FORGIVENESS
        if any(0 < len(seen) < WINDOW for seen in self._seen):
            return False
        if _drift(self._latest, self.slowness) < math.log1p(HYSTERESIS):
            return False
        self.slowness = tuple(self._latest)
        for seen in self._seen:
            seen.clear()
        return True

    def _nearest(self, work: Work, size: int) -> Measured:
        by_size = self.measured[work]
        return by_size[min(by_size, key=lambda measured: abs(math.log(measured / max(1, size))))]


def _drift(now: Sequence[float], before: Sequence[float]) -> float:
    """The greatest change of one unit's speed against another's, as a logarithm."""
    changes = [math.log(new / old) for new, old in zip(now, before, strict=True)]
    return max(changes) - min(changes)
