"""``specmesh calibrate`` or ``python -m specmesh.tools.calibrate``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from rich.console import Console

from specmesh.cli.output_files import writable
from specmesh.decoding.predict.calibration import Calibration
from specmesh.decoding.sampling import Sampling
from specmesh.inference.model import LanguageModel, ModelNotLoadable
from specmesh.serving.process.typer_app import App
from specmesh.tools.calibrate.collect import Position, collect
from specmesh.tools.calibrate.judged import judge
from specmesh.tools.calibrate.pair import CalibrationOptions
from specmesh.tools.calibrate.report import as_json, show
from specmesh.tools.calibrate.tree import tree
from specmesh.tools.kit.options import Json, Tokens

app = App(
    no_args_is_help=True,
    help="Fit the parameters on which strategies base their decisions.",
)


class Halves(NamedTuple):
    """Positions to fit on, and others to judge the fit on, by temperature."""

    fit: Mapping[float, Sequence[Position]]
    judge: Mapping[float, Sequence[Position]]


@app.callback()
def group() -> None:
    """Fit the parameters on which strategies base their decisions."""


@app.command()
def confidence(
    *,
    asked: CalibrationOptions,
    tokens: Tokens = 128,
    output: Annotated[
        Path | None,
        typer.Option(
            help="File to write, for --calibration of a confidence service.",
            show_default="none",
            callback=writable,
        ),
    ] = None,
    json_: Json = False,
) -> None:
    """Fit the probability that the target agrees to the drafter's probabilities of a token.

    The first half of the held-out prompts is used for the fit, the second half to judge it; no file
    has prompts in both.
    """
    try:
        pair = asked.load_pair()
    except ModelNotLoadable as error:
        typer.echo(f"specmesh: {error}", err=True)
        raise typer.Exit(2) from error
    halves = _observe(pair, asked.prompts_in_halves(), asked.temperatures, tokens)
    positions = [position for group in halves.fit.values() for position in group]
    try:
        calibration = Calibration.fit(*zip(*positions, strict=True))
    except ValueError as error:
        typer.echo(f"specmesh: {error}", err=True)
        raise typer.Exit(1) from error
    judged = judge(calibration, halves.judge)
    if output is not None:
        output.write_text(calibration.to_json().rstrip("\n") + "\n", encoding="utf-8")
    if json_:
        typer.echo(json.dumps({"fitted": len(positions), **as_json(judged)}))
    else:
        show(judged, len(positions), Console())


def _observe(
    pair: tuple[LanguageModel, LanguageModel],
    halves: tuple[Sequence[str], Sequence[str]],
    temperatures: Sequence[float],
    num_tokens: int,
) -> Halves:
    """Observe the positions of both halves."""
    from specmesh.inference.offline import tokenize

    target, drafter = pair
    observed = []
    for seed, texts in enumerate(halves):
        prompts = tokenize(target, texts)
        observed.append(
            {
                # Each prompt has its own seed; those of the two halves must not overlap.
                t: collect(target, drafter, prompts, Sampling(t, seed=seed << 32), num_tokens)
                for t in temperatures
            }
        )
    return Halves(*observed)


app.command()(tree)

if __name__ == "__main__":
    app(prog_name="specmesh calibrate")
