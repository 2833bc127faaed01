"""The setting of a plan: the costs, the load, and the objectives."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from random import Random
from statistics import fmean

from specmesh.load.results.objectives import Objectives
from specmesh.load.workload.lengths import Length
from specmesh.orchestrator.strategies.options import StrategyOptions
from specmesh.simulation.costs import MANY, MeshCosts
from specmesh.simulation.law import ForwardShape
from specmesh.simulation.mesh import MeshModel
from specmesh.simulation.models import AcceptanceRates

CELL_ANSWERS = 16
"""Approximate number of concurrent answers in a simulated cell. A greater load is divided into
cells, which is conservative: replicas that serve more answers together wait less for each other."""
HEADS_DEPTH = 5
_NUM_LENGTHS = 1000
_SLACK_TTFT = 4.0
_SLACK_TPOT = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSetting:
    """The setting of a plan.

    ``attain`` is the share of answers that must meet ``objectives``, ``batch`` the maximum number
    of calls in a forward, ``heads_depth`` the maximum number of levels that heads draft.
    ``orchestrator_ms`` is the CPU time of an orchestrator per verification, everything included,
    ``further_ms`` that per further token; None means as in ``costs``. ``options`` has those of
    strategies, by name.
    """

    costs: MeshCosts
    batch: int = 1
    rates: AcceptanceRates = field(default_factory=AcceptanceRates)
    heads_depth: int = HEADS_DEPTH
    rate: float
    output: Length
    objectives: Objectives
    attain: float = 0.95
    orchestrator_ms: float | None = None
    further_ms: float | None = None
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
        target = self.costs.target
        return (target.prompt_ms + self.mean_output * target.ms(ForwardShape())) / 1e3

    def orchestrator_cores(
        self, strategy: str, verifications_per_s: float, further_per_s: float
    ) -> float:
        """Return the cores that orchestrators keep busy with verifications that were asked for and
        with further tokens, which cost much less than a request each."""
        measured_ms = self.costs.orchestrating_ms(strategy, MANY)
        each_ms = measured_ms if self.orchestrator_ms is None else self.orchestrator_ms
        further_ms = measured_ms if self.further_ms is None else self.further_ms
        return (verifications_per_s * each_ms + further_per_s * further_ms) / 1e3

    def model(self, strategy: str, verifiers: int, drafters: int) -> MeshModel:
        """Return a cell with these replicas. What an idle orchestrator takes of a round counts as
        part of the hop."""
        hop = self.costs.verify_hop
        hop = replace(hop, base_ms=hop.base_ms + self.costs.orchestrating_ms(strategy, 1))
        costs = replace(
            self.costs, verify_hop=hop, drafters=self.costs.drafters[:1] if drafters else ()
        )
        return MeshModel(
            *(costs, verifiers, drafters), batch=self.batch, heads_depth=self.heads_depth
        )

    @property
    def cells(self) -> int:
        """Return the number of equal parts of the load, each of which is simulated separately."""
        return max(1, math.ceil(self.rate * self.answer_s / (2 * CELL_ANSWERS)))


def default_objectives(costs: MeshCosts) -> Objectives:
    """Return the default objectives: a first token within 4 first forwards of the target, and 1.5
    times its other forwards for each token after it."""
    each_ms = costs.target.ms(ForwardShape()) + costs.verify_hop.ms(0)
    first_ms = each_ms + costs.target.prompt_ms
    return Objectives(ttft_s=_SLACK_TTFT * first_ms / 1e3, tpot_s=_SLACK_TPOT * each_ms / 1e3)
