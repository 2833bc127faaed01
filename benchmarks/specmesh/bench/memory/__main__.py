"""``specmesh bench memory`` or ``python -m specmesh.bench.memory``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp
from typing import Annotated

import psutil
import typer
from rich.console import Console

from specmesh.bench.memory.measure import MemoryLoad, MemorySamples
from specmesh.bench.memory.report import as_json, is_flat, outcomes, table
from specmesh.bench.memory.samples import MemorySample
from specmesh.bench.memory.summary import NUM_BLOCKS, summarise
from specmesh.cli.exit_status import ExitStatus
from specmesh.cli.local.mesh import LocalMesh, MeshOptions
from specmesh.cli.local.model_options import PairOptions
from specmesh.cli.local.models import WaitingModels
from specmesh.cli.local.options import RedisUrl
from specmesh.cli.local.process import StartError
from specmesh.cli.runner import run, until_signalled
from specmesh.client import AsyncClient
from specmesh.serving.process.typer_app import App
from specmesh.tools.kit.options import Json
from specmesh.tools.kit.prompts import read_prompts

app = App()

_CACHE_BYTES = str(32 << 20)
"""Cache size of each model, so small that it is full in the second half of a run."""


@app.command()
def main(
    requests: Annotated[int, typer.Option(min=4 * NUM_BLOCKS, help="Number of requests.")] = 50_000,
    sessions: Annotated[int, typer.Option(min=1, help="Number of concurrent answers.")] = 16,
    simulated: Annotated[
        bool, typer.Option(help="Use simulated models: quicker, but torch is not measured.")
    ] = False,
    redis_url: RedisUrl = None,
    json_: Json = False,
) -> None:
    """Answer many short requests of every kind, and check whether any process grows with them.

    They use every strategy and mode, prompts of 1 to 800 characters, and one answer in ten is
    abandoned. Exits with 1 unless the memory of every process is flat over the second half, and
    also if more than 1 in 100 requests fail.
    """
    console = Console(stderr=True)

    async def work() -> int:
        directory = Path(mkdtemp(prefix="specmesh-"))
        mesh = LocalMesh(_options(redis_url, simulated=simulated), directory, console.print)
        return await until_signalled(measure(mesh), mesh.kill)

    async def measure(mesh: LocalMesh) -> int:
        measured = await _measure(mesh, requests, sessions, _progress(console, requests))
        summaries = summarise(measured.samples)
        if json_:
            typer.echo(json.dumps(as_json(measured, summaries)))
        else:
            Console().print(table(summaries))
            Console().print(outcomes(measured))
        return 0 if is_flat(measured, summaries) else ExitStatus.FAILED

    run(work())


def _options(redis_url: str | None, *, simulated: bool) -> MeshOptions:
    cached = {f"SPECMESH_{role}__CACHE_BYTES": _CACHE_BYTES for role in ("VERIFIER", "DRAFTER")}
    return MeshOptions(
        models=(
            WaitingModels(target_ms=0.0, drafter_ms=0.0, acceptance=0.8)
            if simulated
            else PairOptions().real_models(threads=1)
        ),
        num_verifiers=2,
        num_confidence=1,
        calibration=None if simulated else PairOptions().calibration,
        redis_url=redis_url,
        drain_s=1.0,
        environment=cached,
    )


async def _measure(
    mesh: LocalMesh, num_requests: int, num_sessions: int, progress: Callable[[MemorySample], None]
) -> MemorySamples:
    """Run the load. Raises StartError, also if a process of the mesh died."""
    texts = read_prompts(None)
    async with mesh, AsyncClient(mesh.address) as client:
        load = MemoryLoad(mesh, client, texts, num_requests, progress)
        try:
            return await load.run(num_sessions)
        except* psutil.NoSuchProcess as gone:
            raise StartError(f"a process of the mesh died: {gone.exceptions[0]}") from None


def _progress(console: Console, num_requests: int) -> Callable[[MemorySample], None]:
    """Return a callback that prints a line after every tenth of the requests."""
    tenths = 0

    def tell(sample: MemorySample) -> None:
        nonlocal tenths
        if sample.num_requests * 10 >= tenths * num_requests:
            tenths += 1
            held = (f"{name} {each.private / 1e6:.1f}" for name, each in sample.held.items())
            console.print(
                f"{sample.num_requests} in {sample.seconds:.0f} s; MB: {', '.join(held)}",
                highlight=False,
            )

    return tell


if __name__ == "__main__":
    app(prog_name="specmesh bench memory")
