"""The strategies against the target alone, and the automatic choice against the best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

from specmesh.bench.crowd.grid import CrowdCell
from specmesh.bench.crowd.speeds import AUTO, CellSpeeds


class Compared(NamedTuple):
    """The speed of a strategy in a cell over that of the target alone."""

    strategy: str
    cell: CrowdCell
    ratio: float


@dataclass(frozen=True, slots=True)
class StrategyRatios:
    """The ratios of a strategy over all cells; ``slower`` is the share of cells in which it is
    slower than the target alone by more than a hundredth."""

    strategy: str
    worst: float
    mean: float
    slower: float


@dataclass(frozen=True, slots=True)
class Regret:
    """The share of the speed of the best strategy that ``auto`` lacks, over all cells; None while
    there is no such strategy."""

    mean: float | None
    worst: float | None


_NOTICEABLE = 0.01
"""Simulations with other seeds differ by about as much."""


def compared(cells: Sequence[CellSpeeds]) -> list[Compared]:
    """Return all ratios, the worst ones first."""
    found = [
        Compared(strategy, each.cell, speed / each.alone)
        for each in cells
        for strategy, speed in _all(each).items()
    ]
    return sorted(found, key=lambda each: each.ratio)


def ratios(found: Sequence[Compared]) -> list[StrategyRatios]:
    """Return the ratios by strategy, the one with the worst ratio first."""
    by_strategy: dict[str, list[float]] = {}
    for each in found:
        by_strategy.setdefault(each.strategy, []).append(each.ratio)
    return [
        StrategyRatios(
            *(strategy, min(own), fmean(own)),
            slower=fmean(each < 1 - _NOTICEABLE for each in own),
        )
        for strategy, own in by_strategy.items()
    ]


def regret(cells: Sequence[CellSpeeds]) -> Regret:
    """Return what the automatic choice costs."""
    found = [
        1 - each.auto / max(each.alone, each.auto, *each.strategies.values())
        for each in cells
        if each.auto is not None
    ]
    return Regret(fmean(found), max(found)) if found else Regret(None, None)


def _all(each: CellSpeeds) -> dict[str, float]:
    return each.strategies if each.auto is None else {AUTO: each.auto, **each.strategies}
