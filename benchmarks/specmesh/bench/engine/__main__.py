"""``specmesh bench engine`` or ``python -m specmesh.bench.engine``."""

from __future__ import annotations

import json
from concurrent.futures.process import BrokenProcessPool
from enum import StrEnum
from typing import Annotated

import typer
from rich.console import Console

from specmesh import models
from specmesh.bench.engine.plan import EnginePlan
from specmesh.bench.engine.report import as_json, show
from specmesh.bench.engine.run import measure
from specmesh.inference.model import ModelNotLoadable

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class Dtype(StrEnum):
    """Number types of weights and activations."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"


@app.command()
def main(
    model: Annotated[
        str | None,
        typer.Option(help="Folder or Hugging Face id.", show_default="the shipped target"),
    ] = None,
    dtype: Annotated[Dtype, typer.Option(help="Of weights and activations.")] = Dtype.FLOAT32,
    device: Annotated[str, typer.Option(help="torch device.")] = "cpu",
    threads: Annotated[int, typer.Option(min=1, help="Threads of a forward.")] = 2,
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
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
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
