"""What is planned for: how long forwards take, the load, and what its users are promised."""

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
"""About how many answers are under way at once in what is simulated. A greater load is divided into
cells, which is on the safe side: replicas that serve more answers together wait less for each
other."""
_NUM_LENGTHS = 1000
_SLACK_TTFT = 4.0
_SLACK_TPOT = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSetting:
    """Times are in seconds.

    ``attain``: the share of answers that must meet ``objectives``. ``batch``: how many calls may
    share a forward. ``heads_s``: the time of one level that the target's heads draft, None without
    heads; ``heads_depth``: how many levels that are at most. ``orchestrator_s``: processor time of
    an orchestrator for each verification, with all that belongs to it. ``options``: those of
    strategies, by name.
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
        """Mean tokens of an answer."""
        rng = Random(self.seed)  # noqa: S311 - a plan must repeat
        return fmean(self.output.draw(rng) for _ in range(_NUM_LENGTHS))

    @property
    def answer_s(self) -> float:
        """How long the target alone, with nothing else to do, takes for an answer."""
        first_s = self.target.forward_s(first=True, quantile=0.5, num_nodes=1)
        return first_s + (self.mean_output - 1) * self.target.each_s

    @property
    def cells(self) -> int:
        """Into how many equal parts the load is divided; each is simulated as if alone."""
        return max(1, math.ceil(self.rate * self.answer_s / (2 * CELL_ANSWERS)))


def default_objectives(target: FixedLatency, hop_s: float) -> Objectives:
    """A first token within four of the target's first forwards, and half again the time of its
    others for each token after it."""
    first_s = target.forward_s(first=True, quantile=0.5, num_nodes=1) + 2 * hop_s
    return Objectives(
        ttft_s=_SLACK_TTFT * first_s, tpot_s=_SLACK_TPOT * (target.each_s + 2 * hop_s)
    )
