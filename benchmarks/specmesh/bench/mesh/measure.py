"""The runs: every strategy at every lookahead, on a mesh of real processes for each row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from specmesh.bench.mesh.simulated import ExpectedRow, Setting
from specmesh.cli.local.mesh import LocalMesh, MeshOptions
from specmesh.cli.local.models import WaitingModels
from specmesh.client import AsyncClient
from specmesh.orchestrator.strategies.options import StrategyOptions
from specmesh.tools.kit.experiment import GREEDY, Experiment, Run, Speculation
from specmesh.tools.simulate.papers.table2 import COMPARED

NUM_VERIFIERS = 7
"""Number of replicas as in the paper, which has eight processors, one of them for the drafter."""

_WARM_UP_PROMPT = (0,)
_NUM_WARM_UP_TOKENS = 20


@dataclass(frozen=True, slots=True)
class MeshRuns:
    """The runs of a row. ``wall_s`` has the fastest time of each prompt."""

    num_processes: int
    wall_s: Mapping[Setting, Sequence[float]]
    identical: bool = True
    """True if all strategies gave the same text for each prompt."""


@dataclass(frozen=True, slots=True)
class MeshPlan:
    """The settings that all rows share."""

    prompts: Sequence[Sequence[int]]
    num_tokens: int
    num_repeats: int
    """Number of repeated runs of each strategy at its best lookahead."""
    seed: int


async def measure_row(
    row: ExpectedRow, plan: MeshPlan, directory: Path, report: Callable[[str], None]
) -> MeshRuns:
    """Run the plan on a mesh with the row's latencies. Raises StartError, SpecmeshError."""
    models = WaitingModels(
        target_ms=row.published.target_ms,
        drafter_ms=row.published.drafter_ms,
        acceptance=row.published.acceptance,
        seed=plan.seed,
    )
    options = MeshOptions(models=models, num_verifiers=NUM_VERIFIERS, drain_s=1.0)
    async with LocalMesh(options, directory, report) as mesh, AsyncClient(mesh.address) as client:
        every = _experiment(plan, row.simulated_s)
        for each in every.speculations:  # The mesh learns latencies and opens connections.
            await every.ask(client, _WARM_UP_PROMPT, each, num_tokens=_NUM_WARM_UP_TOKENS)
        runs = [run async for run in every.measure(client)]
        for _ in range(plan.num_repeats):
            best = [row.best(strategy, fastest(runs)) for strategy in COMPARED]
            runs += [run async for run in _experiment(plan, best).measure(client)]
        said = {(run.prompt, run.result.token_ids) for run in runs}
        return MeshRuns(len(mesh.pids), fastest(runs), identical=len(said) == len(plan.prompts))


def fastest(runs: Iterable[Run]) -> dict[Setting, list[float]]:
    """Return the seconds of each prompt as the client sees them. Of repeated runs the fastest
    counts, because other load on the machine only adds time."""
    best: dict[Setting, dict[int, float]] = {}
    for run in runs:
        setting = (run.speculation.strategy, run.speculation.options.lookahead)
        seconds = best.setdefault(setting, {})
        seconds[run.prompt] = min(run.seconds, seconds.get(run.prompt, run.seconds))
    return {setting: list(seconds.values()) for setting, seconds in best.items()}


def _experiment(plan: MeshPlan, settings: Iterable[Setting]) -> Experiment:
    return Experiment(
        prompts=plan.prompts,
        speculations=[
            Speculation(strategy, StrategyOptions(lookahead=lookahead))
            for strategy, lookahead in settings
        ],
        temperatures=(GREEDY,),
        num_tokens=plan.num_tokens,
    )
