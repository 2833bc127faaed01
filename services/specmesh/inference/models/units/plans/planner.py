"""The division of work among units, planned from measurements at load and times while serving.

The module is pure: it has no clock, and the same measurements give the same shares.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from statistics import median
from typing import NamedTuple, Protocol

from specmesh.inference.models.units.plans.shares import Measured, Shares, best_shares

WINDOW = 16
"""The number of forward passes that are compared together, so that one pass slowed by other load
decides nothing."""
HYSTERESIS = 0.1
"""The relative change of the units' speeds that causes a new division. A smaller change is noise,
and would gain less than a twentieth."""
FORGIVENESS = 0.99
"""The factor on the slowness of a unit after each forward pass in which it had no part, so that it
is tried again in time."""


class Work(NamedTuple):
    """A kind of work: linear layers from ``features`` to ``columns``, or, without these, attention
    to committed KV."""

    features: int = 0
    columns: int = 0


ATTENTION = Work()


class Plan(Protocol):
    """A plan for dividing work."""

    def shares(self, work: Work, size: int) -> Shares:
        """Return the shares for ``size`` tokens of a linear layer, or for ``size`` keys of
        attention."""
        ...

    def expected_s(self, work: Work, size: int, shares: Shares) -> tuple[float, ...]:
        """Return the seconds that each unit's part would take if speeds had not changed since
        load."""
        ...

    def observe(self, taken_s: Sequence[float], expected_s: Sequence[float]) -> bool:
        """Record the seconds of each unit for its parts of a forward pass; return True if shares
        have changed."""
        ...


class FixedPlan:
    """A plan with the same shares for all work, for experiments."""

    def __init__(self, shares: Shares) -> None:
        self._shares = shares

    def shares(self, work: Work, size: int) -> Shares:  # noqa: ARG002
        """Return the fixed shares."""
        return self._shares

    def expected_s(self, work: Work, size: int, shares: Shares) -> tuple[float, ...]:  # noqa: ARG002
        """Return no expectation."""
        return (0.0,) * len(shares)

    def observe(self, taken_s: Sequence[float], expected_s: Sequence[float]) -> bool:  # noqa: ARG002
        """Return False: the shares never change."""
        return False


class Planner:
    """A ``Plan`` from measurements ``{work: {size: measured}}`` that follows changes of the units'
    speeds."""

    def __init__(self, measured: Mapping[Work, Mapping[int, Measured]], num_units: int) -> None:
        self.measured = measured
        self.slowness = (1.0,) * num_units
        """The factor by which each unit is estimated to be slower than when it was measured."""
        self._latest = list(self.slowness)
        self._seen = [deque[float](maxlen=WINDOW) for _ in self.slowness]

    def shares(self, work: Work, size: int) -> Shares:
        """Return the shares with which the units end together, by the measurement of the nearest
        size."""
        return best_shares(self._nearest(work, size).slowed(self.slowness))

    def expected_s(self, work: Work, size: int, shares: Shares) -> tuple[float, ...]:
        """Return the expectation by the nearest size, whose error is the same for all units."""
        costs = self._nearest(work, size).costs
        return tuple(cost.whole_s * share for cost, share in zip(costs, shares, strict=True))

    def observe(self, taken_s: Sequence[float], expected_s: Sequence[float]) -> bool:
        """Compare the times of the last forward passes, and change shares if speeds have
        changed."""
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
    """Return the greatest change of one unit's speed against another's, as a logarithm."""
    changes = [math.log(new / old) for new, old in zip(now, before, strict=True)]
    return max(changes) - min(changes)
