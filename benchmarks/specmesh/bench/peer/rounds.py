"""The turns of vLLM and of the mesh, with each of its strategies."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median

from specmesh.bench.peer import vllm_alone
from specmesh.bench.peer.plan import PeerPlan
from specmesh.bench.peer.vllm_alone import TimedAnswers
from specmesh.cli.local.mesh import LocalMesh, MeshOptions
from specmesh.client import AsyncClient
from specmesh.tools.kit.experiment import GREEDY, Experiment, Speculation
from specmesh.tools.kit.processes import processes

VLLM = "vllm"

Side = Callable[[int, float], Awaitable[TimedAnswers]]
"""Answers the first prompts, as many as there are streams, at a temperature."""


@dataclass(frozen=True, slots=True)
class PeerCell:
    """The speeds at one load, in tokens per second of all answers together, by round."""

    temperature: float
    streams: int
    vllm: Sequence[float]
    strategies: Mapping[str, Sequence[float]]
    num_different: int | None
    """Number of texts of the target alone that differ from vLLM's; None unless greedy."""
    num_cached_tokens: int | None
    """Tokens of all prompts that vLLM had kept in the last round."""

    def ratio(self, strategy: str) -> float:
        """Return the speed of a strategy over that of vLLM: the median over the rounds."""
        pairs = zip(self.strategies[strategy], self.vllm, strict=True)
        return median(own / vllm for own, vllm in pairs)


async def measure(
    plan: PeerPlan,
    options: MeshOptions,
    directory: Path,
    report: Callable[[str], None],
    advance: Callable[[], None],
) -> list[PeerCell]:
    """Measure all cells; ``advance`` is called after each round. Raises ModelNotLoadable,
    StartError, SpecmeshError, and BrokenProcessPool if vLLM's process dies."""
    prompts = plan.prompts()
    loop = asyncio.get_running_loop()
    with processes(1) as pool:
        await loop.run_in_executor(pool, vllm_alone.start, plan)

        async def vllm(streams: int, temperature: float) -> TimedAnswers:
            asked = prompts[:streams], plan.num_tokens, temperature
            return await loop.run_in_executor(pool, vllm_alone.answer, *asked)

        async with (
            LocalMesh(options, directory, report) as mesh,
            AsyncClient(mesh.address) as client,
        ):
            sides: dict[str, Side] = {VLLM: vllm}
            for name in plan.strategies:
                experiment = Experiment(
                    prompts=prompts, speculations=[Speculation(name)], num_tokens=plan.num_tokens
                )
                sides[name] = partial(_by_mesh, client, experiment)
            return [
                await measure_cell(sides, plan.rounds, temperature, streams, advance)
                for temperature, streams in product(plan.temperatures, plan.streams)
            ]


async def measure_cell(
    sides: Mapping[str, Side],
    rounds: int,
    temperature: float,
    streams: int,
    advance: Callable[[], None],
) -> PeerCell:
    """Let all sides answer in turns, vLLM and the target alone first; ``advance`` is called after
    each round."""
    speeds: dict[str, list[float]] = {name: [] for name in sides}
    names, latest = list(sides), dict[str, TimedAnswers]()
    for number in range(rounds + 1):
        first = number % len(names)
        for name in (*names[first:], *names[:first]):
            answers = await sides[name](streams, temperature)
            latest[name] = answers
            if number:  # The first round reads the prompts.
                num_tokens = sum(map(len, answers.token_ids))
                speeds[name].append(num_tokens / answers.seconds)
        advance()
    by_vllm, own = latest[VLLM], latest[names[1]]
    texts = zip(own.token_ids, by_vllm.token_ids, strict=True)
    differ = [ours != theirs for ours, theirs in texts]
    vllm = speeds.pop(VLLM)
    num_different = sum(differ) if temperature == GREEDY else None
    cached = by_vllm.num_cached_tokens
    return PeerCell(temperature, streams, vllm, speeds, num_different, cached)


async def _by_mesh(
    client: AsyncClient, experiment: Experiment, streams: int, temperature: float
) -> TimedAnswers:
    (speculation,) = experiment.speculations
    began = time.perf_counter()
    runs = await asyncio.gather(
        *(experiment.timed(client, each, speculation, temperature) for each in range(streams))
    )
    seconds = time.perf_counter() - began
    return TimedAnswers([list(run.result.token_ids) for run in runs], seconds)
