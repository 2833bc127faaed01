"""DSI's offline study: non-SI, SI and DSI over drafter latency and acceptance (Figure 2).

Timor et al. 2025, Section 4.1 and Appendix F.3. Times are in units of the target's forward. The
strategies run on the virtual clock, each algorithm at its best lookahead. To find that without
running all, ``rules.py`` gives lower bounds of the time for each lookahead:

- SI: the exact time;
- DSI where Equation 1 holds and a draft takes less than a target's forward: the time if even the
  answer's last, shorter block found a free replica;
- DSI with larger lookaheads: the time with the best of them;
- DSI with smaller lookaheads, where verifications grow: the time of Proposition 1.

Lookaheads are run in the order of their bounds until the next bound is no better than the best
time. Lookaheads beyond the answer's length are all equivalent. Every run checks its bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property, partial
from statistics import fmean

from specmesh.decoding.predict.closed_forms import min_lookahead
from specmesh.decoding.simulated.hashed import SimulatedDrafter, SimulatedTarget
from specmesh.orchestrator.strategies import STRATEGIES
from specmesh.orchestrator.strategies.base import Goal
from specmesh.simulation.costs import MeshCosts
from specmesh.simulation.mesh import MeshModel
from specmesh.simulation.models import CertainModels
from specmesh.simulation.run import simulate
from specmesh.tools.simulate.papers.rules import (
    Forwards,
    agreements,
    dsi_seconds,
    ideal_dsi_seconds,
    slow_draft_bound_seconds,
    speculative_forwards,
)
from specmesh.tools.simulate.parallel import spread

SPECULATION_PARALLELISM = 7
TARGET = 1.0
PROMPT = (0,)
TOLERANCE = 1e-9
"""Relative tolerance: times that differ by less are equal except for rounding."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Answers of ``num_tokens``, averaged over the texts of seeds 0..``repeats`` - 1."""

    num_tokens: int = 100
    repeats: int = 5


@dataclass(frozen=True, slots=True)
class Best:
    """The mean time at the best lookahead."""

    time: float
    lookahead: int


@dataclass(frozen=True, slots=True)
class Cell:
    """The three algorithms for one drafter.

    ``dsi`` may take any lookahead; ``dsi_eq1`` and ``si_eq1`` only those that satisfy
    Equation 1, as published for DSI.
    """

    drafter_latency: float
    acceptance: float
    non_si: float
    si: Best
    si_eq1: Best
    dsi_eq1: Best
    dsi: Best

    @property
    def baseline(self) -> float:
        """Return the time of the faster of SI and non-SI."""
        return min(self.si.time, self.non_si)


def run_cell(at: tuple[float, float], settings: Settings) -> Cell:
    """Return the cell at (drafter latency, acceptance)."""
    return _Study(*at, settings).cell()


def run_grid(step: float, settings: Settings, workers: int) -> Iterator[Cell]:
    """Yield all cells, drafter latency by drafter latency, computed by ``workers`` processes."""
    return spread(partial(run_cell, settings=settings), list(grid(step)), workers)


def grid(step: float) -> Iterator[tuple[float, float]]:
    """Yield (drafter latency, acceptance) over {step..1} x {0..1}."""
    num = round(1 / step)
    for latency in range(1, num + 1):
        for acceptance in range(num + 1):
            yield latency / num, acceptance / num


class _Study:
    def __init__(self, drafter_latency: float, acceptance: float, settings: Settings) -> None:
        self._latency = drafter_latency
        self._acceptance = acceptance
        self._settings = settings
        self._times: dict[tuple[str, int], float] = {}
        self._agree = [
            _agreements(acceptance, seed, settings.num_tokens) for seed in range(settings.repeats)
        ]

    def cell(self) -> Cell:
        least = min_lookahead(TARGET, self._latency, SPECULATION_PARALLELISM)
        # All larger ones are equivalent to the last one here.
        last = max(least, self._settings.num_tokens - 1)
        everything, under_eq1 = range(1, last + 1), range(least, last + 1)
        return Cell(
            self._latency,
            self._acceptance,
            non_si=self._run("autoregressive", 1),
            si=self._best("speculative", everything, self._si_time),
            si_eq1=self._best("speculative", under_eq1, self._si_time),
            dsi_eq1=self._best("dsi", under_eq1, partial(self._dsi_bound, least=least)),
            dsi=self._best("dsi", everything, partial(self._dsi_bound, least=least)),
        )

    def _best(self, strategy: str, lookaheads: range, bound: Callable[[int], float]) -> Best:
        best = Best(math.inf, 0)
        # Rounded, so that the smallest of equal ones comes first.
        for at_least, lookahead in sorted((round(bound(k), 9), k) for k in lookaheads):
            if best.time <= at_least * (1 + TOLERANCE):
                break
            time = self._run(strategy, lookahead)
            if time < at_least * (1 - TOLERANCE):
                raise AssertionError(
                    f"{strategy}, latency {self._latency}, acceptance {self._acceptance}, "
                    f"lookahead {lookahead}: took {time}, less than its bound {at_least}"
                )
            if time < best.time * (1 - TOLERANCE):
                best = Best(time, lookahead)
        return best

    def _si_time(self, lookahead: int) -> float:
        tokens = self._settings.num_tokens
        return fmean(
            _forwards(self._acceptance, seed, tokens, lookahead).seconds(self._latency, TARGET)
            for seed in range(self._settings.repeats)
        )

    def _dsi_bound(self, lookahead: int, least: int) -> float:
        if lookahead < least:
            return fmean(ideal_dsi_seconds(a, self._latency, TARGET) for a in self._agree)
        if lookahead * self._latency < TARGET * (1 - TOLERANCE):
            return fmean(dsi_seconds(a, lookahead, self._latency, TARGET) for a in self._agree)
        return self._slow_draft_bound

    @cached_property
    def _slow_draft_bound(self) -> float:
        return fmean(slow_draft_bound_seconds(a, self._latency, TARGET) for a in self._agree)

    def _run(self, strategy: str, lookahead: int) -> float:
        key = strategy, lookahead
        if key not in self._times:
            self._times[key] = fmean(
                run_once(
                    *(strategy, lookahead, self._latency, self._acceptance),
                    *(seed, self._settings.num_tokens),
                )
                for seed in range(self._settings.repeats)
            )
        return self._times[key]


def run_once(
    strategy: str,
    lookahead: int,
    drafter_latency: float,
    acceptance: float,
    seed: int,
    num_tokens: int,
) -> float:
    """Return the time of one answer by the strategy itself, on the virtual clock."""
    drafter = _drafter(acceptance, seed)
    costs = MeshCosts.fixed(1e3 * TARGET, 1e3 * drafter_latency)
    mesh = MeshModel(costs, SPECULATION_PARALLELISM)
    goal = Goal(num_tokens, lookahead=lookahead)
    models = CertainModels(drafter.target, (drafter,))
    return simulate(STRATEGIES[strategy](goal), models, mesh, prompt=PROMPT).duration_s


def _drafter(acceptance: float, seed: int) -> SimulatedDrafter:
    return SimulatedDrafter(SimulatedTarget(seed), acceptance)


@cache
def _agreements(acceptance: float, seed: int, num_tokens: int) -> tuple[bool, ...]:
    return agreements(_drafter(acceptance, seed), PROMPT, num_tokens)


@cache
def _forwards(acceptance: float, seed: int, num_tokens: int, lookahead: int) -> Forwards:
    return speculative_forwards(_agreements(acceptance, seed, num_tokens), lookahead)
