"""The speed of the strategies in each acceptance mode, by the similarity of drafter and target.

A draft token is accepted with probability Σ min(p, q) in rejection mode and somewhat less often in
coupled mode; a token that the target draws independently equals it with probability Σ p·q only. At
temperature 0 all three are the same number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median

from specmesh.decoding.predict.closed_forms import acceptance_rate, coupled_acceptance_rate
from specmesh.decoding.sampling import AcceptanceMode, Sampling
from specmesh.decoding.simulated.hashed import SimulatedDrafter, SimulatedTarget
from specmesh.decoding.simulated.overlapping import SimulatedPair
from specmesh.orchestrator.strategies import STRATEGIES
from specmesh.orchestrator.strategies.base import Goal
from specmesh.simulation.costs import MeshCosts
from specmesh.simulation.mesh import MeshModel
from specmesh.simulation.models import CertainModels, SampledModels, VirtualModels
from specmesh.simulation.run import simulate
from specmesh.tools.simulate.parallel import spread

COLUMNS = {
    "non_si_s": "autoregressive",
    "si_s": "speculative",
    "dsi_s": "dsi",
    "branch_prediction_s": "branch-prediction",
}
PAIRS = ((1.0, 0.08), (0.9, 0.5), (0.78, 0.24), (0.74, 0.06), (0.5, 0.1), (0.3, 0.02), (0.05, 1e-4))
"""Pairs of Σ min(p, q) and Σ p·q for modes that draw tokens; the last drafter is almost useless."""
GREEDY_ALPHAS = (1.0, 0.9, 0.74, 0.5, 0.3, 0.05)


@dataclass(frozen=True, slots=True)
class ModesSetting:
    """The setting: answers of ``num_tokens``, one for each of ``seeds``, on ``num_verifiers``
    replicas."""

    target_ms: float
    drafter_ms: float
    num_verifiers: int
    num_tokens: int
    seeds: Sequence[int]


@dataclass(frozen=True, slots=True)
class ModesRow:
    """A mode and a drafter, whose ``alpha`` is Σ min(p, q) and whose ``overlap`` is Σ p·q."""

    mode: AcceptanceMode
    alpha: float
    overlap: float

    @property
    def acceptance(self) -> float:
        """Return the acceptance rate of draft tokens in this mode."""
        if self.mode is AcceptanceMode.GREEDY:
            return self.alpha
        pair = SimulatedPair(self.alpha, self.overlap)
        p, q = pair.target_probabilities(), pair.draft_probabilities()
        rejection = self.mode is AcceptanceMode.REJECTION
        return acceptance_rate(p, q) if rejection else coupled_acceptance_rate(p, q)

    def models(self, seed: int) -> VirtualModels:
        """Return the models, whose text depends on ``seed``."""
        if self.mode is AcceptanceMode.GREEDY:
            target = SimulatedTarget(seed)
            return CertainModels(target, (SimulatedDrafter(target, self.alpha),))
        return SampledModels(
            SimulatedPair(self.alpha, self.overlap), Sampling(seed=seed, mode=self.mode)
        )


def rows() -> list[ModesRow]:
    """Return all rows, mode by mode. At temperature 0 ``alpha`` and ``overlap`` are the same."""
    return [
        *(ModesRow(AcceptanceMode.GREEDY, alpha, alpha) for alpha in GREEDY_ALPHAS),
        *(ModesRow(AcceptanceMode.COUPLED, *pair) for pair in PAIRS),
        *(ModesRow(AcceptanceMode.REJECTION, *pair) for pair in PAIRS),
    ]


def run_modes(setting: ModesSetting, workers: int) -> Iterator[dict[str, object]]:
    """Yield the figures of each row, computed by ``workers`` processes."""
    return spread(partial(figures, setting=setting), rows(), workers)


def figures(row: ModesRow, setting: ModesSetting) -> dict[str, object]:
    """Return the median seconds of an answer by strategy."""
    return {
        "mode": row.mode.name.lower(),
        "alpha": row.alpha,
        "overlap": row.overlap,
        "acceptance": row.acceptance,
        **{
            column: median(_seconds(row, strategy, setting, seed) for seed in setting.seeds)
            for column, strategy in COLUMNS.items()
        },
    }


def _seconds(row: ModesRow, strategy: str, setting: ModesSetting, seed: int) -> float:
    costs = MeshCosts.fixed(setting.target_ms, setting.drafter_ms)
    mesh = MeshModel(costs, setting.num_verifiers)
    goal = Goal(setting.num_tokens)
    answer = simulate(STRATEGIES[strategy](goal), row.models(seed), mesh, prompt=(0, seed))
    return answer.duration_s
