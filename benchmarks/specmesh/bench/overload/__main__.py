"""``specmesh bench overload`` or ``python -m specmesh.bench.overload``."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import mkdtemp
from typing import Annotated

import typer
from rich.console import Console

from specmesh.bench.load.explained import explained
from specmesh.bench.overload.cells import SETTLED_S, OverloadLoad, measure
from specmesh.bench.overload.mesh import OverloadMesh, running
from specmesh.bench.overload.report import as_json, table
from specmesh.cli.exit_status import ExitStatus
from specmesh.cli.local.model_options import PairOptions
from specmesh.cli.local.models import Models, WaitingModels
from specmesh.cli.runner import run, until_signalled
from specmesh.serving.process.typer_app import App
from specmesh.tools.kit.options import Json, Seed

app = App()


@app.command()
def main(
    factor: Annotated[
        list[float] | None,
        typer.Option(
            min=0.1,
            help="Load as a multiple of the capacity. May be repeated.",
            show_default="1, 1.5, 2 and 4",
        ),
    ] = None,
    users: Annotated[
        int, typer.Option(min=1, help="Users of the closed loop that measures the capacity.")
    ] = 16,
    orchestrators: Annotated[int, typer.Option(min=1, help="Number of orchestrators.")] = 2,
    prompt_tokens: Annotated[int, typer.Option(min=1, help="Length of each prompt.")] = 32,
    tokens: Annotated[int, typer.Option(min=1, help="Length of each answer.")] = 32,
    warm_up: Annotated[float, typer.Option(min=0, help="Seconds before each measurement.")] = 5.0,
    seconds: Annotated[float, typer.Option(min=0.1, help="Measured time of each load.")] = 12.0,
    settle: Annotated[
        float, typer.Option(min=0, help="Seconds after each load until rooms are read.")
    ] = SETTLED_S,
    *,
    simulated: Annotated[
        bool, typer.Option("--simulated", help="Serve models that wait instead of computing.")
    ] = False,
    seed: Seed = 0,
    json_: Json = False,
) -> None:
    """Offer a mesh of real processes more than it can answer, over gRPC and through the gateway.

    The capacity is measured in the same run, by a closed loop; open loads follow, as multiples of
    it. Fails unless at each 90 % of the capacity is answered, 99 in 100 refusals come within
    100 ms, nothing is accepted and then not answered, answers are the same when they are asked for
    again after the load, and rooms are as before within --settle seconds.
    """
    console = Console(stderr=json_, highlight=False)
    load = OverloadLoad(
        users=users,
        factors=factor or (1.0, 1.5, 2.0, 4.0),
        prompt_tokens=prompt_tokens,
        output_tokens=tokens,
        warm_up_s=warm_up,
        duration_s=seconds,
        settle_s=settle,
        seed=seed,
    )
    models: Models = (
        WaitingModels(target_ms=10.0, drafter_ms=2.0, acceptance=0.8)
        if simulated
        else PairOptions().real_models(threads=1)
    )

    async def work() -> int:
        directory = Path(mkdtemp(prefix="specmesh-"))
        async with running(models, orchestrators, directory, console.print) as mesh:
            return await until_signalled(ask(mesh), mesh.kill)

    async def ask(mesh: OverloadMesh) -> int:
        cells = await measure(mesh, load, console.print)
        console.print(table(cells))
        if json_:
            typer.echo(json.dumps(as_json(load, cells)))
        return ExitStatus.OK if all(each.is_good for each in cells) else ExitStatus.FAILED

    run(explained(work()))


if __name__ == "__main__":
    app(prog_name="specmesh bench overload")
