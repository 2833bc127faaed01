"""DSI's Table 2 from its latencies and acceptance rates, on the virtual clock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean

from specmesh.decoding.predict.closed_forms import required_parallelism
from specmesh.decoding.simulated.hashed import SimulatedDrafter, SimulatedTarget
from specmesh.orchestrator.strategies import STRATEGIES
from specmesh.orchestrator.strategies.base import Goal
from specmesh.simulation.costs import MeshCosts
from specmesh.simulation.mesh import MeshModel
from specmesh.simulation.models import CertainModels
from specmesh.simulation.run import simulate

LOOKAHEADS = (1, 5, 10)
SPECULATION_PARALLELISM = 7
RUNNER_UP = 0.5
"""P(the drafter's second choice is right, if not the first), which branch prediction needs."""
COMPARED = ("autoregressive", "speculative", "dsi", "branch-prediction")


@dataclass(frozen=True, slots=True)
class PublishedRow:
    """The paper's measurements of a pair of models on a dataset, and its speed-up.

    Times are per forward without first tokens, as in the table.
    """

    target: str
    drafter: str
    dataset: str
    target_ms: float
    drafter_ms: float
    acceptance: float
    published_dsi_over_si: float


ROWS: Sequence[PublishedRow] = (
    PublishedRow("Starcoder-15B", "Starcoder-168M", "HumanEval", 20.6, 6.8, 0.93, 1.92),
    PublishedRow("Starcoder-15B", "Starcoder-168M", "MBPP", 21.0, 6.8, 0.90, 1.66),
    PublishedRow("Phi3-14B", "Phi3-4B", "Alpaca", 49.6, 33.4, 0.87, 1.60),
    PublishedRow("Phi3-14B", "Phi3-4B", "HumanEval", 52.1, 34.0, 0.95, 1.41),
    PublishedRow("Phi3-14B", "Phi3-4B", "CNN-DM", 52.4, 34.6, 0.93, 1.39),
    PublishedRow("Phi3-14B", "Phi3-4B", "MBPP", 52.2, 34.3, 0.94, 1.37),
    PublishedRow("Vicuna-13B", "Vicuna-68M", "CNN-DM", 37.7, 2.5, 0.63, 1.47),
    PublishedRow("Vicuna-13B", "Vicuna-68M", "Alpaca", 33.3, 2.5, 0.58, 1.41),
    PublishedRow("Vicuna-7B", "Vicuna-68M", "CNN-DM", 29.4, 2.5, 0.67, 1.29),
    PublishedRow("Vicuna-7B", "Vicuna-68M", "Alpaca", 26.0, 2.5, 0.59, 1.70),
)


@dataclass(frozen=True, slots=True)
class Table2Experiment:
    """The settings that all rows share: one answer for each seed of the target and each prompt."""

    num_tokens: int = 50
    seeds: Sequence[int] = tuple(range(30))
    prompts: Sequence[Sequence[int]] = ((0,),)
    hop_s: float = 0.0
    """One-way latency between any two processes."""


@dataclass(frozen=True, slots=True)
class Timing:
    """A strategy with a lookahead (None if it takes none); ``seconds`` are by seed, then prompt."""

    strategy: str
    lookahead: int | None
    satisfies_eq1: bool
    """True if 7 replicas are enough for verifications of ``lookahead`` tokens never to wait."""
    mean_s: float
    seconds: Sequence[float]


def table2_seconds(
    row: PublishedRow,
    strategy: str,
    lookahead: int | None,
    seed: int,
    prompt: Sequence[int],
    num_tokens: int,
    hop_s: float = 0.0,
) -> float:
    """Return the time of one answer on a mesh of 7 replicas and one drafter.

    ``seed`` is that of a simulated target, ``prompt`` token ids: with these a real mesh of
    simulated models gives the same tokens, with rejections at the same positions.
    """
    drafter = SimulatedDrafter(SimulatedTarget(seed), row.acceptance, RUNNER_UP)
    costs = MeshCosts.fixed(row.target_ms, row.drafter_ms, hop_ms=1e3 * hop_s)
    mesh = MeshModel(costs, SPECULATION_PARALLELISM)
    goal = Goal(num_tokens, lookahead=lookahead)
    models = CertainModels(drafter.target, (drafter,))
    return simulate(STRATEGIES[strategy](goal), models, mesh, prompt=prompt).duration_s


def timings(row: PublishedRow, experiment: Table2Experiment) -> Iterator[Timing]:
    """Yield the timings of every strategy with every lookahead."""
    for strategy in COMPARED:
        for lookahead in LOOKAHEADS if "lookahead" in STRATEGIES[strategy].options else (None,):
            seconds = [
                table2_seconds(
                    *(row, strategy, lookahead, seed, prompt),
                    *(experiment.num_tokens, experiment.hop_s),
                )
                for seed in experiment.seeds
                for prompt in experiment.prompts
            ]
            yield Timing(
                strategy,
                lookahead,
                lookahead is None
                or required_parallelism(row.target_ms, row.drafter_ms, lookahead)
                <= SPECULATION_PARALLELISM,
                fmean(seconds),
                seconds,
            )


def row_report(row: PublishedRow, experiment: Table2Experiment) -> dict[str, object]:
    """Return one row as JSON: published numbers, all timings, the best ones, and ratios of DSI over
    SI."""
    found = list(timings(row, experiment))
    best = {
        strategy: min((t for t in found if t.strategy == strategy), key=lambda t: t.mean_s)
        for strategy in COMPARED
    }
    eq1 = min(t.mean_s for t in found if t.strategy == "dsi" and t.satisfies_eq1)
    mean_s = {(t.strategy, t.lookahead): t.mean_s for t in found}
    return {
        **asdict(row),
        "timings": [asdict(t) for t in found],
        "best": {name: {"lookahead": t.lookahead, "mean_s": t.mean_s} for name, t in best.items()},
        "dsi_over_si": {
            "best": best["speculative"].mean_s / best["dsi"].mean_s,
            "best_under_eq1": best["speculative"].mean_s / eq1,
            **{f"lookahead_{k}": mean_s["speculative", k] / mean_s["dsi", k] for k in LOOKAHEADS},
        },
    }
