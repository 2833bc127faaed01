"""The setting of a plan: times of forwards, the load, and the objectives."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from statistics import fmean

from specmesh.load.results.objectives import Objectives
from specmesh.load.workload.lengths import Length
from specmesh.orchestrator.strategies.options import StrategyOptions
from specmesh.simulation.latency import FixedLatency

CELL_ANSWERS = 16
"""Approximate number of concurrent answers in a simulated cell. A greater load is divided into
cells, which is conservative: replicas that serve more answers together wait less for each other."""
_NUM_LENGTHS = 1000
_SLACK_TTFT = 4.0
_SLACK_TPOT = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSetting:
    """The setting of a plan. Times are in seconds.

    ``attain`` is the share of answers that must meet ``objectives``, ``batch`` the maximum number
    of calls in a forward. ``heads_s`` is the time in which the target's heads draft one level (None
    without heads), ``heads_depth`` the maximum number of levels. ``orchestrator_s`` is the CPU time
    of an orchestrator per verification, everything included. ``options`` has those of strategies,
    by name.
    """

    target: FixedLatency
    drafter: FixedLatency
    hop_s: float = 0.0
    batch: int = 1
    acceptance: float = 0.8
    runner_up: float = 0.5
    heads_s: float | None = None
    heads_depth: int = 5
    heads_acceptance: float = 0.8
    rate: float
    output: Length
    objectives: Objectives
    attain: float = 0.95
    orchestrator_s: float
    options: Mapping[str, StrategyOptions] = field(default_factory=dict)
    seed: int = 0

    @property
    def mean_output(self) -> float:
        """Return the mean number of tokens per answer."""
        rng = Random(self.seed)  # noqa: S311 - a plan must repeat
        return fmean(self.output.draw(rng) for _ in range(_NUM_LENGTHS))

    @property
    def answer_s(self) -> float:
        """Return how long an otherwise idle target takes for an answer."""
        first_s = self.target.forward_s(first=True, quantile=0.5, num_nodes=1)
        return first_s + (self.mean_output - 1) * self.target.each_s

    @property
    def cells(self) -> int:
        """Return the number of equal parts of the load, each of which is simulated separately."""
        return max(1, math.ceil(self.rate * self.answer_s / (2 * CELL_ANSWERS)))


def default_objectives(target: FixedLatency, hop_s: float) -> Objectives:
    """Return the default objectives: a first token within 4 first forwards of the target, and 1.5
    times its other forwards for each token after it."""
    first_s = target.forward_s(first=True, quantile=0.5, num_nodes=1) + 2 * hop_s
    return Objectives(
        ttft_s=_SLACK_TTFT * first_s, tpot_s=_SLACK_TPOT * (target.each_s + 2 * hop_s)
    )
