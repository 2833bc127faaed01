"""``specmesh bench filter`` or ``python -m specmesh.bench.filter``."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import mkdtemp
from typing import Annotated

import typer
from rich.console import Console

from specmesh.bench.filter.bench import Bench, Plan
from specmesh.bench.filter.picture import draw, write_csv
from specmesh.bench.filter.report import as_json, show
from specmesh.cli import shipped
from specmesh.cli.local.mesh import MeshOptions
from specmesh.cli.local.process import StartError
from specmesh.cli.runner import run, until_signalled
from specmesh.cli.up import (
    CalibrationFile,
    DrafterModels,
    RedisUrl,
    TargetModel,
    Threads,
    real_models,
    shipped_calibration,
)

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    target: TargetModel = None,
    drafter: DrafterModels = None,
    calibration: CalibrationFile = None,
    num_prompts: Annotated[int, typer.Option(min=1, help="Held-out prompts to sweep.")] = 16,
    tokens: Annotated[int, typer.Option(min=8, help="Length of each answer.")] = 96,
    verifiers: Annotated[int, typer.Option(min=1, help="Replicas of the target.")] = 1,
    sessions: Annotated[
        int, typer.Option(min=0, max=1024, help="Sessions at once in the second part; 0: none.")
    ] = 32,
    rounds: Annotated[int, typer.Option(min=1, help="Times that part is timed.")] = 3,
    figure: Annotated[Path | None, typer.Option(help="PNG to draw.", show_default="none")] = None,
    csv: Annotated[Path | None, typer.Option(help="CSV to write.", show_default="none")] = None,
    threads: Threads = 1,
    redis_url: RedisUrl = None,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """CALID's Figure 3: quality against the share of tokens that the target never sees.

    The prompts are of the half that the shipped calibration was not fitted on. Exits with 1
    unless the end points are exactly the drafter's and the target's own greedy texts.
    """

    async def work() -> int:
        models = real_models(target, drafter, threads)
        file = calibration or shipped_calibration(target, drafter)
        if file is None:
            raise StartError(
                "what is shipped doesn't know this pair: name a file that 'specmesh calibrate "
                "confidence' wrote of it with --calibration"
            )
        prompts = shipped.read_prompts(None)
        unseen = prompts[len(prompts) // 2 :]
        bench = Bench(
            options=MeshOptions(
                models=models,
                num_verifiers=verifiers,
                num_confidence=1,
                calibration=file,
                threads=threads,
                redis_url=redis_url,
                drain_s=1.0,
            ),
            models=models,
            plan=Plan(
                prompts=unseen[:num_prompts],
                num_tokens=tokens,
                num_sessions=sessions,
                num_rounds=rounds,
                crowd_prompts=tuple(unseen),
            ),
            directory=Path(mkdtemp(prefix="specmesh-")),
            console=Console(stderr=True),
        )
        status = await until_signalled(bench.run(), bench.kill)
        if bench.summary is None:
            return status
        if figure is not None:
            draw(bench.summary.points, figure)
        if csv is not None:
            write_csv(bench.summary.points, csv)
        if json_:
            typer.echo(json.dumps(as_json(bench.summary, bench.sessions)))
        else:
            show(bench.summary, bench.sessions, Console())
        return status

    run(work())


if __name__ == "__main__":
    app(prog_name="specmesh bench filter")
