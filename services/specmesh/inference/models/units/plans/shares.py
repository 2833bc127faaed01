"""The share of some work for each unit so that all end together: pure arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

Shares = tuple[float, ...]
"""Each unit's share of a piece of work; they add up to 1."""

GRANULE = 16
"""The multiple in which columns are divided: full vectors, and full cache lines of results."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The seconds that a unit takes for the whole of some work while the others also work, and the
    overhead of giving it any."""

    whole_s: float
    overhead_s: float


@dataclass(frozen=True, slots=True)
class Measured:
    """The measured seconds of some work: by the first unit alone, by each unit, and the first
    unit's cost of dividing it, which does not depend on the shares."""

    alone_s: float
    costs: tuple[Cost, ...]
    dividing_s: float

    def slowed(self, slowness: Sequence[float]) -> Measured:
        """Return the measurement with each unit slower by its factor in ``slowness``."""
        costs = (
            Cost(cost.whole_s * times, cost.overhead_s)
            for cost, times in zip(self.costs, slowness, strict=True)
        )
        return Measured(self.alone_s * slowness[0], tuple(costs), self.dividing_s)

    def dearer(self, seconds: float) -> Measured:
        """Return the measurement with dividing ``seconds`` more expensive."""
        return replace(self, dividing_s=self.dividing_s + seconds)


def alone(num_units: int) -> Shares:
    """Return shares that give everything to the first unit."""
    return (1.0, *[0.0] * (num_units - 1))


def even(num_units: int) -> Shares:
    """Return the same share for each unit."""
    return (1 / num_units,) * num_units


def best_shares(measured: Measured) -> Shares:
    """Return the shares with which the last unit ends soonest; all to the first unit if dividing
    doesn't pay."""
    _, shares = _together(measured.costs)
    return shares if gain_s(measured) else alone(len(shares))


def gain_s(measured: Measured) -> float:
    """Return the seconds by which the work ends sooner if it is divided; 0 if it should not be."""
    ends_s, _ = _together(measured.costs)
    return max(0.0, measured.alone_s - ends_s - measured.dividing_s)


def _together(costs: Sequence[Cost]) -> tuple[float, Shares]:
    """Return the time at which all units end together, and the shares for that.

    Units with more overhead than that time get nothing. So the time is that of the first m units in
    order of overhead, for the greatest m that is better than m - 1.
    """
    order = sorted(range(len(costs)), key=lambda unit: costs[unit].overhead_s)
    speed = head_start = 0.0
    ends_s = float("inf")
    for unit in order:
        cost = costs[unit]
        if cost.overhead_s >= ends_s:
            break
        speed += 1 / cost.whole_s
        head_start += cost.overhead_s / cost.whole_s
        ends_s = (1 + head_start) / speed
    shares = tuple(max(0.0, ends_s - cost.overhead_s) / cost.whole_s for cost in costs)
    return ends_s, shares


def ranges(shares: Shares, count: int, granule: int = GRANULE) -> tuple[range, ...]:
    """Divide ``count`` columns or keys into one range for each unit. All borders except the last
    are multiples of ``granule``. A unit with a share of 0 gets none, unless rounding leaves it the
    rest."""
    borders = [0]
    given = 0.0
    for share in shares[:-1]:
        given += share
        border = round(given * count / granule) * granule
        borders.append(min(count, max(border, borders[-1])))
    borders.append(count)
    if not shares[-1]:
        last = max(unit for unit, share in enumerate(shares) if share)
        borders[last + 1 :] = [count] * (len(shares) - last)
    return tuple(map(range, borders, borders[1:]))
