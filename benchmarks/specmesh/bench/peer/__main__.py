"""``specmesh bench vllm`` or ``python -m specmesh.bench.peer``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from tempfile import mkdtemp
from typing import Annotated

import typer
from rich.console import Console

from specmesh.bench.peer.plan import PeerPlan
from specmesh.bench.peer.report import as_json, tables
from specmesh.bench.peer.rounds import measure
from specmesh.cli.exit_status import ExitStatus
from specmesh.cli.local.checks import check_backend
from specmesh.cli.local.cores import available
from specmesh.cli.local.mesh import MeshOptions
from specmesh.cli.local.model_options import PairOptions
from specmesh.cli.local.models import EngineBackend
from specmesh.cli.runner import run
from specmesh.inference.model import ModelNotLoadable
from specmesh.inference.models.vllm.versions import check_versions
from specmesh.serving.process.typer_app import App
from specmesh.tools.kit.experiment import AUTOREGRESSIVE, TEMPERATURES, lossless
from specmesh.tools.kit.options import Json, Temperatures, Tokens
from specmesh.tools.kit.progress import progress

app = App()

STREAMS = (1, 8, 32)
USUAL_STRATEGIES = (AUTOREGRESSIVE, "auto")


@app.command()
def main(
    *,
    pair: PairOptions,
    backend: Annotated[
        EngineBackend,
        typer.Option(help="Engine of the mesh's target.", callback=check_backend),
    ] = EngineBackend.TRANSFORMERS,
    streams: Annotated[
        list[int] | None,
        typer.Option(
            min=1,
            max=256,
            help="Number of concurrent answers. May be repeated.",
            show_default=", ".join(map(str, STREAMS)),
        ),
    ] = None,
    strategy: Annotated[
        list[str] | None,
        typer.Option(
            help="Strategy of the mesh. May be repeated; the target alone is always included.",
            show_default=" and ".join(USUAL_STRATEGIES),
        ),
    ] = None,
    temperature: Temperatures = None,
    tokens: Tokens = 64,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of each cell; medians count.")] = 5,
    threads: Annotated[
        int | None,
        typer.Option(
            min=1, help="Threads of vLLM by itself.", show_default="one for each core available"
        ),
    ] = None,
    mesh_threads: Annotated[
        int, typer.Option(min=1, help="Threads of each process of the mesh.")
    ] = 1,
    json_: Json = False,
) -> None:
    """Compare a mesh with vLLM, which decodes the same prompts in one process and by itself.

    It must run in vLLM's environment: .venv-vllm/bin/specmesh bench vllm, after make setup-vllm.
    Both take turns at the same cores. By default vLLM has all of them, and each process of the mesh
    one thread. The default takes some five minutes on two cores.
    """
    models = pair.real_models(mesh_threads, backend=backend)
    plan = PeerPlan(
        target=models.target,
        drafters=models.drafter_names,
        backend=backend,
        strategies=_able(strategy or USUAL_STRATEGIES, lossless(models)),
        temperatures=sorted(set(temperature or TEMPERATURES)),
        streams=sorted(set(streams or STREAMS)),
        num_tokens=tokens,
        rounds=rounds,
        threads=threads or max(1, len(available())),
        mesh_threads=mesh_threads,
    )
    options = MeshOptions(models=models, threads=mesh_threads, drain_s=1.0)
    console = Console(stderr=True, highlight=False)
    try:
        check_versions()
        plan.check_context()
    except ModelNotLoadable as error:
        typer.echo(f"specmesh: {error}", err=True)
        raise typer.Exit(ExitStatus.USAGE) from error

    async def work() -> int:
        directory = Path(mkdtemp(prefix="specmesh-"))
        with progress("rounds", plan.num_rounds, console) as advance:
            try:
                cells = await measure(plan, options, directory, console.print, advance)
            except ModelNotLoadable as error:
                typer.echo(f"specmesh: {error}", err=True)
                return ExitStatus.FAILED
            except BrokenProcessPool:
                typer.echo("specmesh: vLLM's process was killed; is there enough memory?", err=True)
                return ExitStatus.FAILED
        if json_:
            typer.echo(json.dumps(as_json(plan, cells)))
        else:
            for table in tables(plan, cells):
                Console().print(table)
        return ExitStatus.OK

    run(work())


def _able(strategies: Sequence[str], able: Sequence[str]) -> list[str]:
    """Return the strategies, the target alone first. Raises BadParameter unless the mesh's models
    are ``able`` to run all of them."""
    for name in strategies:
        if name not in able:
            known = ", ".join(able)
            raise typer.BadParameter(f"{name!r} is not one of: {known}", param_hint="--strategy")
    return list(dict.fromkeys((AUTOREGRESSIVE, *strategies)))


if __name__ == "__main__":
    app(prog_name="specmesh bench vllm")
