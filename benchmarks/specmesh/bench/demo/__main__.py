"""``specmesh demo`` or ``python -m specmesh.bench.demo``."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import mkdtemp
from typing import Annotated

import typer
from rich.console import Console

from specmesh.bench.demo.course import Course
from specmesh.cli import shipped
from specmesh.cli.local.mesh import MeshOptions
from specmesh.cli.runner import run, until_signalled
from specmesh.cli.up import (
    DrafterModels,
    Lookahead,
    RedisUrl,
    TargetModel,
    Threads,
    real_models,
)

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    target: TargetModel = None,
    drafter: DrafterModels = None,
    prompts: Annotated[
        Path | None,
        typer.Option(help="JSON list of objects with a 'text'.", show_default="shipped"),
    ] = None,
    num_prompts: Annotated[int, typer.Option(min=1, help="How many, from the first.")] = 5,
    tokens: Annotated[int, typer.Option(min=8, help="Length of each answer.")] = 128,
    verifiers: Annotated[int, typer.Option(min=1, help="Replicas of the target.")] = 1,
    lookahead: Lookahead = None,
    threads: Threads = 1,
    redis_url: RedisUrl = None,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Start a mesh, show what each strategy gains and that it changes no text.

    Exits with 1 if it does change one.
    """

    async def work() -> int:
        models = real_models(target, drafter, threads)
        options = MeshOptions(
            models=models,
            num_verifiers=verifiers,
            threads=threads,
            lookahead=lookahead,
            redis_url=redis_url,
            drain_s=1.0,
        )
        course = Course(
            options=options,
            models=models,
            # In the file's order, whatever is said to them and however fast.
            prompts=shipped.read_prompts(prompts)[:num_prompts],
            num_tokens=tokens,
            directory=Path(mkdtemp(prefix="specmesh-")),
            console=Console(stderr=json_),
        )
        status = await until_signalled(course.run(), course.kill)
        if json_ and course.summary is not None:
            typer.echo(json.dumps(course.summary))
        return status

    run(work())


if __name__ == "__main__":
    app(prog_name="specmesh demo")
