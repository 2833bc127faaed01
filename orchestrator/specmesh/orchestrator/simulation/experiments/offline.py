"""DSI's offline study: non-SI, SI and DSI over drafter latency and acceptance (Figure 2).

Timor et al. 2025, Section 4.1 and Appendix F.3. The target's forward takes 1; latencies and
times are in its unit. All runs are those of the strategies on the virtual clock, each algorithm
at its best lookahead in 1..200. Which one that is, the rules of ``rules.py`` tell:

- SI: exactly, for every lookahead;
- DSI where Equation 1 holds and k tokens draft faster than the target's forward: exactly;
- DSI with smaller lookaheads: all are run, since verifications grow there and no rule says how;
- DSI with larger ones: left out where their bound says that none is better, else all are run.

Lookaheads from the answer's length on all do the same. So nothing is missed, and each run that
a rule chose is compared with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from itertools import takewhile
from statistics import fmean

from specmesh.decoding.closed_forms import min_lookahead
from specmesh.decoding.simulated import SimulatedDrafter, SimulatedTarget
from specmesh.orchestrator.simulation.experiments.parallel import spread
from specmesh.orchestrator.simulation.experiments.rules import (
    Forwards,
    agreements,
    dsi_seconds,
    ideal_dsi_seconds,
    slow_draft_bound_seconds,
    speculative_forwards,
)
from specmesh.orchestrator.simulation.latency import Fixed
from specmesh.orchestrator.simulation.mesh import MeshModel
from specmesh.orchestrator.simulation.request import Models
from specmesh.orchestrator.simulation.run import simulate
from specmesh.orchestrator.strategies import STRATEGIES
from specmesh.orchestrator.strategies.base import Goal

SPECULATION_PARALLELISM = 7
TARGET = 1.0
PROMPT = (0,)
TOLERANCE = 1e-9
"""Relative; times that differ by less are equal but for rounding."""


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
        """The faster of SI and non-SI."""
        return min(self.si.time, self.non_si)


def run_cell(at: tuple[float, float], settings: Settings) -> Cell:
    """The cell at (drafter latency, acceptance)."""
    return _Study(*at, settings).cell()


def run_grid(step: float, settings: Settings, workers: int) -> Iterator[Cell]:
    """All cells, drafter latency by drafter latency, as they come from ``workers`` processes."""
    return spread(partial(run_cell, settings=settings), list(grid(step)), workers)


def grid(step: float) -> Iterator[tuple[float, float]]:
    """(drafter latency, acceptance) over {step..1} x {0..1}."""
    num = round(1 / step)
    for latency in range(1, num + 1):
        for acceptance in range(num + 1):
            yield latency / num, acceptance / num


class _Study:
    def __init__(self, drafter_latency: float, acceptance: float, settings: Settings) -> None:
        self._latency = drafter_latency
        self._acceptance = acceptance
        self._settings = settings
        self._agree = [
            _agreements(acceptance, seed, settings.num_tokens) for seed in range(settings.repeats)
        ]

    def cell(self) -> Cell:
        least = min_lookahead(TARGET, self._latency, SPECULATION_PARALLELISM)
        dsi_eq1 = self._best_dsi_eq1(least)
        ideal = fmean(ideal_dsi_seconds(a, self._latency, TARGET) for a in self._agree)
        dsi = dsi_eq1
        if ideal < dsi.time * (1 - TOLERANCE):
            dsi = _best([dsi_eq1, *(self._run_dsi(k) for k in range(1, least))])
        return Cell(
            self._latency,
            self._acceptance,
            non_si=self._run("autoregressive", 1),
            si=self._best_si(1),
            si_eq1=self._best_si(least),
            dsi_eq1=dsi_eq1,
            dsi=dsi,
        )

    def _best_si(self, least: int) -> Best:
        return self._best_by_rule("speculative", range(least, self._last(least) + 1), self._si_rule)

    def _best_dsi_eq1(self, least: int) -> Best:
        fast = list(takewhile(self._drafts_before_target, range(least, self._last(least) + 1)))
        best = self._best_by_rule("dsi", fast, self._dsi_rule) if fast else self._run_dsi(least)
        bound = fmean(slow_draft_bound_seconds(a, self._latency, TARGET) for a in self._agree)
        if bound < best.time * (1 - TOLERANCE):
            slow = range(fast[-1] + 1 if fast else least, self._last(least) + 1)
            best = _best([best, *map(self._run_dsi, slow)])
        return best

    def _last(self, least: int) -> int:
        """The last lookahead that differs from those after it."""
        return max(least, self._settings.num_tokens - 1)

    def _drafts_before_target(self, lookahead: int) -> bool:
        return lookahead * self._latency < TARGET * (1 - TOLERANCE)

    def _best_by_rule(
        self, strategy: str, lookaheads: Iterable[int], rule: Callable[[int], float]
    ) -> Best:
        expected = _best([Best(rule(k), k) for k in lookaheads])
        time = self._run(strategy, expected.lookahead)
        if not math.isclose(time, expected.time, rel_tol=TOLERANCE):
            raise AssertionError(
                f"{strategy} at latency {self._latency}, acceptance {self._acceptance}, lookahead "
                f"{expected.lookahead} took {time}, {expected.time} by the rule"
            )
        return Best(time, expected.lookahead)

    def _si_rule(self, lookahead: int) -> float:
        tokens = self._settings.num_tokens
        return fmean(
            _forwards(self._acceptance, seed, tokens, lookahead).seconds(self._latency, TARGET)
            for seed in range(self._settings.repeats)
        )

    def _dsi_rule(self, lookahead: int) -> float:
        return fmean(dsi_seconds(a, lookahead, self._latency, TARGET) for a in self._agree)

    def _run_dsi(self, lookahead: int) -> Best:
        return Best(self._run("dsi", lookahead), lookahead)

    def _run(self, strategy: str, lookahead: int) -> float:
        return fmean(
            run_once(
                *(strategy, lookahead, self._latency, self._acceptance),
                *(seed, self._settings.num_tokens),
            )
            for seed in range(self._settings.repeats)
        )


def run_once(
    strategy: str,
    lookahead: int,
    drafter_latency: float,
    acceptance: float,
    seed: int,
    num_tokens: int,
) -> float:
    """The time of one answer by the strategy itself, on the virtual clock."""
    drafter = _drafter(acceptance, seed)
    mesh = MeshModel(Fixed(TARGET), (Fixed(drafter_latency),), SPECULATION_PARALLELISM)
    goal = Goal(num_tokens, lookahead=lookahead)
    models = Models(drafter.target, (drafter,))
    return simulate(STRATEGIES[strategy](goal), models, mesh, prompt=PROMPT).duration_s


def _drafter(acceptance: float, seed: int) -> SimulatedDrafter:
    return SimulatedDrafter(SimulatedTarget(seed), acceptance)


@cache
def _agreements(acceptance: float, seed: int, num_tokens: int) -> tuple[bool, ...]:
    return agreements(_drafter(acceptance, seed), PROMPT, num_tokens)


@cache
def _forwards(acceptance: float, seed: int, num_tokens: int, lookahead: int) -> Forwards:
    return speculative_forwards(_agreements(acceptance, seed, num_tokens), lookahead)


def _best(candidates: Iterable[Best]) -> Best:
    """The fastest, with the smallest lookahead among equals but for rounding."""
    found = list(candidates)
    least = min(each.time for each in found)
    return min(
        (each for each in found if each.time <= least * (1 + TOLERANCE)),
        key=lambda each: each.lookahead,
    )
