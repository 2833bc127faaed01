"""``specmesh bench chaos`` or ``python -m specmesh.chaos``."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from rich.console import Console

from specmesh.chaos.report import as_json, bad, show, timeline
from specmesh.chaos.run import Chaos, Plan
from specmesh.cli.runner import FAILED, run, until_signalled

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    minutes: Annotated[float, typer.Option(min=0.1, help="How long faults go on.")] = 5.0,
    seed: Annotated[
        int, typer.Option(min=0, help="Of faults, requests, and what the model says.")
    ] = 0,
    streams: Annotated[int, typer.Option(min=1, help="Answers at once.")] = 8,
    keep: Annotated[
        Path | None,
        typer.Option(help="Folder for logs and timeline.json.", show_default="none"),
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Kill, stop, slow and cut off the processes of a mesh at random while answers stream.

    Half of the time Redis keeps what it holds, half of the time it forgets when it ends. Exits
    with 1 if a token was lost, doubled or changed, or an answer failed.
    """
    console = Console(stderr=True)

    async def work() -> int:
        with ExitStack() as stack:
            directory = keep or Path(stack.enter_context(TemporaryDirectory(prefix="specmesh-")))
            plan = Plan(duration_s=minutes * 60, streams=streams, seed=seed)
            chaos = Chaos(
                plan,
                directory,
                lambda line: console.print(line, highlight=False, markup=False),
            )
            status = await until_signalled(chaos.run(), chaos.kill)
            figures = as_json(seed, chaos.phases)
            if keep is not None:
                (keep / "timeline.json").write_text(json.dumps(timeline(chaos.phases)))
        if json_:
            typer.echo(json.dumps(figures))
        else:
            show(figures, Console())
        found = any(bad(each) for phase in chaos.phases for each in phase.judged)
        return status or (FAILED if found else 0)

    run(work())


if __name__ == "__main__":
    app(prog_name="specmesh bench chaos")
