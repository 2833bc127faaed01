"""``specmesh bench lookahead`` or ``python -m specmesh.bench.lookahead``."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import mkdtemp
from typing import Annotated

import typer
from rich.console import Console

from specmesh.bench.lookahead.bench import Bench, speculations
from specmesh.bench.strategies.measure import SEED, TEMPERATURES, Experiment
from specmesh.cli import shipped
from specmesh.cli.local.mesh import MeshOptions
from specmesh.cli.runner import run, until_signalled
from specmesh.cli.up import DrafterModels, RedisUrl, TargetModel, Threads, real_models

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

LOOKAHEADS = (1, 2, 3, 4, 5, 6, 8, 10)

_MAX_UINT64 = 2**64 - 1


@app.command()
def main(
    target: TargetModel = None,
    drafter: DrafterModels = None,
    prompts: Annotated[
        Path | None,
        typer.Option(help="JSON list of objects with a 'text'.", show_default="shipped"),
    ] = None,
    num_prompts: Annotated[int, typer.Option(min=1, help="How many of them.")] = 20,
    tokens: Annotated[int, typer.Option(min=8, help="Length of each answer.")] = 128,
    lookahead: Annotated[
        list[int] | None,
        typer.Option(
            min=1,
            max=64,
            help="A fixed one; several times for several.",
            show_default=", ".join(map(str, LOOKAHEADS)),
        ),
    ] = None,
    temperature: Annotated[
        list[float] | None,
        typer.Option(min=0, help="Several times for several.", show_default="0 and 0.8"),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=_MAX_UINT64, help="Of the sampling.")] = SEED,
    threads: Threads = 1,
    redis_url: RedisUrl = None,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Run speculative decoding with drafts of fixed lengths, and with drafts that end where going
    on doesn't pay, on the same prompts in turn.

    Exits with 1 if their texts differ.
    """
    lookaheads = tuple(dict.fromkeys(lookahead or LOOKAHEADS))

    async def work() -> int:
        models = real_models(target, drafter, threads)
        bench = Bench(
            options=MeshOptions(models=models, threads=threads, redis_url=redis_url, drain_s=1.0),
            models=models,
            experiment=Experiment(
                prompts=shipped.read_prompts(prompts)[:num_prompts],
                speculations=speculations(lookaheads),
                temperatures=tuple(dict.fromkeys(temperature or TEMPERATURES)),
                num_tokens=tokens,
                seed=seed,
            ),
            directory=Path(mkdtemp(prefix="specmesh-")),
            console=Console(stderr=json_),
        )
        status = await until_signalled(bench.run(), bench.kill)
        if json_ and bench.summary is not None:
            typer.echo(json.dumps(bench.summary))
        return status

    run(work())


if __name__ == "__main__":
    app(prog_name="specmesh bench lookahead")
