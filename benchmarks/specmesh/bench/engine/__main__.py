"""``specmesh bench engine`` or ``python -m specmesh.bench.engine``."""

from __future__ import annotations

import json
from concurrent.futures.process import BrokenProcessPool
from typing import Annotated

import typer
from rich.console import Console

from specmesh import models
from specmesh.bench.engine.plan import EnginePlan
from specmesh.bench.engine.report import as_json, show
from specmesh.bench.engine.run import measure
from specmesh.bench.kit.options import Device, Dtype, Json, Model, ModelDtype, Threads
from specmesh.inference.model import ModelNotLoadable

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    model: Model = None,
    dtype: ModelDtype = Dtype.FLOAT32,
    device: Device = "cpu",
    threads: Threads = 2,
    streams: Annotated[
        list[int] | None,
        typer.Option(
            min=1,
            help="Streams at once, and size of generate's batches; several times for several. "
            "1 is always among them.",
            show_default="1, 8 and 32",
        ),
    ] = None,
    tokens: Annotated[int, typer.Option(min=2, help="Length of each answer.")] = 64,
    rounds: Annotated[
        int,
        typer.Option(
            min=1, help="Times that streams are timed; the fastest counts, of ratios the median."
        ),
    ] = 1,
    seed: Annotated[int, typer.Option(min=0, help="Of the prompts' lengths and texts.")] = 0,
    json_: Json = False,
) -> None:
    """Time the inference engine against transformers' generate on the same prompts, greedily.

    Answers go on after an end of text. In float32, exits with 1 if any of ours differ.
    """
    plan = EnginePlan(
        model=str(models.path(models.TARGET)) if model is None else model,
        dtype=dtype.value,
        device=device,
        threads=threads,
        streams=tuple(sorted({1, *(streams or (8, 32))})),
        num_tokens=tokens,
        rounds=rounds,
        seed=seed,
    )
    try:
        measured = measure(plan, Console(stderr=True))
    except ModelNotLoadable as error:
        typer.echo(f"specmesh: {error}", err=True)
        raise typer.Exit(2) from error
    except BrokenProcessPool as error:
        typer.echo("specmesh: one of the processes was killed; is there enough memory?", err=True)
        raise typer.Exit(2) from error
    except KeyboardInterrupt as error:
        raise typer.Exit(130) from error
    if json_:
        typer.echo(json.dumps(as_json(plan, measured)))
    else:
        show(plan, measured, Console())
    if dtype is Dtype.FLOAT32 and not measured.identical:
        raise typer.Exit(1)


if __name__ == "__main__":
    app(prog_name="specmesh bench engine")
