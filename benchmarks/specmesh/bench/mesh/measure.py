"""The runs: every strategy at every lookahead, on a mesh of real processes for each row."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from specmesh.bench.mesh.simulated import ExpectedRow, Setting
from specmesh.bench.simulate.table2 import COMPARED
from specmesh.cli.local.mesh import LocalMesh, MeshOptions
from specmesh.cli.local.models import SimulatedModels
from specmesh.client import Client

NUM_VERIFIERS = 7
"""As in the paper: eight processors, one of them the drafter's."""

_NUM_WARM_UP_TOKENS = 20


@dataclass(slots=True)
class Measured:
    """A row's runs. ``wall_s`` has a time for each prompt, as the client sees it.

    Where a prompt was repeated it is the fastest: whatever else the machine does only adds.
    """

    num_processes: int
    wall_s: Mapping[Setting, list[float]] = field(default_factory=lambda: defaultdict(list))
    identical: bool = True


@dataclass(frozen=True, slots=True)
class Plan:
    """What every row is run with."""

    prompts: Sequence[Sequence[int]]
    num_tokens: int
    num_repeats: int
    """How often each strategy is run again at its best lookahead."""
    seed: int


async def measure_row(
    row: ExpectedRow, plan: Plan, directory: Path, report: Callable[[str], None]
) -> Measured:
    """Start a mesh with the row's latencies, ask, end it. Raises StartError, SpecmeshError."""
    models = SimulatedModels(
        target_ms=row.published.target_ms,
        drafter_ms=row.published.drafter_ms,
        acceptance=row.published.acceptance,
        seed=plan.seed,
    )
    options = MeshOptions(models=models, num_verifiers=NUM_VERIFIERS, drain_s=1.0)
    async with LocalMesh(options, directory, report) as mesh, Client(mesh.address) as client:
        measured = Measured(num_processes=len(mesh.pids))
        for strategy, lookahead in row.simulated_s:  # latencies are learned, connections made
            await _ask(client, (0,), strategy, lookahead, _NUM_WARM_UP_TOKENS)
        for number in range(len(plan.prompts)):
            await _run(client, plan, number, list(row.simulated_s), measured)
        for _ in range(plan.num_repeats):
            best = [row.best(strategy, measured.wall_s) for strategy in COMPARED]
            for number in range(len(plan.prompts)):
                await _run(client, plan, number, best, measured)
        return measured


async def _run(
    client: Client, plan: Plan, number: int, settings: Sequence[Setting], measured: Measured
) -> None:
    """One prompt with some strategies, in turn."""
    texts = set()
    for setting in settings:
        began = time.perf_counter()
        texts.add(await _ask(client, plan.prompts[number], *setting, plan.num_tokens))
        seconds = time.perf_counter() - began
        wall_s = measured.wall_s[setting]
        if len(wall_s) == number:
            wall_s.append(seconds)
        else:
            wall_s[number] = min(wall_s[number], seconds)
    measured.identical &= len(texts) == 1


async def _ask(
    client: Client, prompt: Sequence[int], strategy: str, lookahead: int | None, num_tokens: int
) -> tuple[int, ...]:
    stream = client.generate(
        prompt,
        strategy=strategy,
        lookahead=lookahead,
        temperature=0.0,
        max_tokens=num_tokens,
        ignore_end_of_text=True,
    )
    await stream.text()
    return stream.result.token_ids
