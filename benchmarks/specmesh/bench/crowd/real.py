"""The speed of a crowd's answers on a mesh of real processes whose models wait instead of
computing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from specmesh.bench.crowd.targets import MOST_CALLS
from specmesh.cli.local.mesh import LocalMesh, MeshOptions
from specmesh.cli.local.models import WaitingModels
from specmesh.client import AsyncClient
from specmesh.tools.kit.experiment import (
    AUTOREGRESSIVE,
    GREEDY,
    SPECULATIVE,
    Experiment,
    Run,
    Speculation,
)

MODELS = WaitingModels(target_ms=40, drafter_ms=1, acceptance=0.8, batch=MOST_CALLS)
"""One target whose forwards take equally long whatever they compute, and one drafter."""
CROWDS = (1, 2, 4, 8, 16)
STRATEGIES_TRIED = (AUTOREGRESSIVE, SPECULATIVE)
_PROMPT_TOKENS = 16


@dataclass(frozen=True, slots=True)
class RealSpeed:
    """The mean time of a token of each of ``answers`` concurrent answers, as their clients see it,
    and its ratio to that of the smallest crowd."""

    strategy: str
    answers: int
    ms_per_token: float
    ratio: float


@dataclass(frozen=True, slots=True)
class RealSpeeds:
    """The speeds of all crowds; ``identical`` tells whether all strategies gave the same texts."""

    speeds: Sequence[RealSpeed]
    identical: bool


async def measure_real(
    crowds: Sequence[int], num_tokens: int, directory: Path, report: Callable[[str], None]
) -> RealSpeeds:
    """Run crowds of these sizes one after the other. All answer the same prompts, since some are
    easier to draft for than others; a size that does not divide the largest leaves some of them
    out. Raises StartError, SpecmeshError."""
    experiment = Experiment(
        prompts=[tuple(range(each, each + _PROMPT_TOKENS)) for each in range(max(crowds))],
        speculations=[Speculation(name) for name in STRATEGIES_TRIED],
        num_tokens=num_tokens,
    )
    speeds: list[RealSpeed] = []
    texts: set[tuple[int, tuple[int, ...]]] = set()
    options = MeshOptions(models=MODELS, drain_s=1.0)
    async with LocalMesh(options, directory, report) as mesh, AsyncClient(mesh.address) as client:
        await experiment.warm_up(client)
        for speculation in experiment.speculations:
            alone_ms: float | None = None
            for number in crowds:
                runs = await _answered(experiment, client, speculation, number)
                texts |= {(run.prompt, tuple(run.result.token_ids)) for run in runs}
                ms = fmean(1e3 * run.seconds / num_tokens for run in runs)
                alone_ms = alone_ms or ms
                found = RealSpeed(
                    speculation.strategy, number, round(ms, 2), round(ms / alone_ms, 3)
                )
                speeds.append(found)
    return RealSpeeds(speeds, identical=len(texts) == max(crowds))


async def _answered(
    experiment: Experiment, client: AsyncClient, speculation: Speculation, number: int
) -> list[Run]:
    """Answer the prompts, always ``number`` at a time; those that are left over get no answer."""
    runs: list[Run] = []
    for first in range(0, len(experiment.prompts) - number + 1, number):
        runs += await asyncio.gather(
            *(
                experiment.timed(client, prompt, speculation, GREEDY)
                for prompt in range(first, first + number)
            )
        )
    return runs
