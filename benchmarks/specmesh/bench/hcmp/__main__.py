"""``specmesh bench hcmp`` or ``python -m specmesh.bench.hcmp``."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from specmesh import models
from specmesh.inference.model import ModelNotLoadable
from specmesh.inference.models.units.members.specs import UnitSpec, parse_units
from specmesh.serving.process.typer_app import App
from specmesh.tools.kit.options import Json

if TYPE_CHECKING:  # torch takes seconds to import, and --help doesn't need it
    from specmesh.bench.hcmp.exact import Exactness
    from specmesh.bench.hcmp.report import ModelReport
    from specmesh.inference.models.transformers_model import TransformersModel

SLOWNESS = (1, 2)
PINGS = 200

app = App()


@app.command()
def main(
    units: Annotated[str, typer.Option(help="Two units of the CPU.")] = "cpu:0,cpu:1",
    trees: Annotated[int, typer.Option(min=1, help="Number of random trees to compare.")] = 1000,
    widths: Annotated[
        list[int] | None,
        typer.Option(
            "--width",
            min=1,
            help="Tokens of a forward. May be repeated.",
            show_default="1, 8 and, up to 135M, 32",
        ),
    ] = None,
    shipped: Annotated[bool, typer.Option("--shipped", help="Skip larger models.")] = False,
    json_: Json = False,
) -> None:
    """Divide forwards between two units: compare the logits, and the speed by the second unit's
    share.

    This is done with equal units and with a second one that does each of its slices twice. It takes
    two cores for three minutes; times are meaningful only on an otherwise idle machine. Exits with
    1 if logits differ.
    """
    specs = _two_units(units)
    from specmesh.bench.hcmp.exact import check
    from specmesh.bench.hcmp.report import as_json, show

    before = os.getloadavg()[0]
    reports: list[ModelReport] = []
    exact: Exactness | None = None
    try:
        with tempfile.TemporaryDirectory() as folder:
            for name, place, usual in _models(Path(folder), shipped=shipped):
                plain = _load(place)
                divided = _load(place, specs)
                try:
                    exact = exact or check(divided, plain, trees)
                    reports.append(_measure(name, divided, plain, widths or usual))
                finally:
                    divided.close()
    except ModelNotLoadable as error:
        typer.echo(f"specmesh: {error}", err=True)
        raise typer.Exit(2) from error
    assert exact is not None
    load = (before, os.getloadavg()[0])
    if json_:
        typer.echo(json.dumps(as_json(units, load, exact, reports)))
    else:
        show(load, exact, reports, Console())
    if not exact.holds:
        raise typer.Exit(1)


def _two_units(text: str) -> Sequence[UnitSpec]:
    try:
        units = parse_units(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--units") from error
    if [unit.kind for unit in units] != ["cpu", "cpu"]:
        raise typer.BadParameter("must name two units of the CPU", param_hint="--units")
    return units


def _models(folder: Path, *, shipped: bool) -> Iterator[tuple[str, Path, Sequence[int]]]:
    """Yield name, folder and widths of each model, saved when it is its turn."""
    from specmesh.bench.hcmp.shapes import SHAPES

    yield "the shipped target", models.path(models.TARGET), (1, 8, 32)
    if not shipped:
        for shape in SHAPES:
            name = f"{shape.name}, {shape.layers} of {shape.whole_layers} layers"
            yield name, shape.save(folder), shape.widths


def _load(folder: Path, units: Sequence[UnitSpec] | None = None) -> TransformersModel:
    from specmesh.inference.models.transformers_model import TransformersModel
    from specmesh.inference.models.units.model_crew import ModelCrew

    divide = None if units is None else partial(ModelCrew, units)
    return TransformersModel.load(str(folder), dtype="float32", device="cpu", divide=divide)


def _measure(
    name: str, divided: TransformersModel, plain: TransformersModel, widths: Sequence[int]
) -> ModelReport:
    from specmesh.bench.hcmp.divided import crew_of
    from specmesh.bench.hcmp.report import ModelReport
    from specmesh.bench.hcmp.speed import time_widths

    crew = crew_of(divided)
    equal = crew.measure()
    return ModelReport(
        model=name,
        ping_us=median(crew.ping(1) for _ in range(PINGS)) * 1e6,
        planner=equal,
        speeds=[
            speeds
            for slowness in SLOWNESS
            for speeds in time_widths(divided, plain, widths, slowness, equal)
        ],
    )


if __name__ == "__main__":
    app(prog_name="specmesh bench hcmp")
