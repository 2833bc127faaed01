"""``specmesh bench crowd`` or ``python -m specmesh.bench.crowd``."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from tempfile import mkdtemp
from typing import Annotated, Any, Final

import typer
from rich.console import Console

from specmesh.bench.crowd.grid import ACCEPTANCES, COSTS, REPLICAS, USUAL_ANSWERS, CrowdGrid
from specmesh.bench.crowd.picture import drawn
from specmesh.bench.crowd.real import CROWDS, RealSpeeds, measure_real
from specmesh.bench.crowd.report import describe_regret, ratios_table, real_table, worst_table
from specmesh.bench.crowd.speeds import CHOICES, CellSpeeds, gathered, tasks, tokens_per_s
from specmesh.bench.crowd.summary import compared, ratios, regret
from specmesh.bench.crowd.targets import TARGETS
from specmesh.cli.exit_status import ExitStatus
from specmesh.cli.output_files import check_writable
from specmesh.cli.runner import run
from specmesh.serving.process.typer_app import App
from specmesh.tools.kit.options import Json
from specmesh.tools.kit.progress import tracked
from specmesh.tools.simulate.parallel import spread

app = App()

USUAL_SAMPLE: Final = 24


class CrowdPart(StrEnum):
    """The parts of the benchmark."""

    REAL = "real"
    CELLS = "cells"


@app.command()
def main(
    *,
    part: Annotated[
        list[CrowdPart] | None,
        typer.Option(help="Part to run. May be repeated.", show_default="all"),
    ] = None,
    forward: Annotated[
        list[str] | None,
        typer.Option(
            help="Target to simulate: ms of a forward + ms of each of its tokens, or the arithmetic"
            " of a GPU. May be repeated.",
            show_default=", ".join(TARGETS),
        ),
    ] = None,
    acceptance: Annotated[
        list[float] | None,
        typer.Option(
            min=0,
            max=1,
            help="Rate at which draft tokens are right. May be repeated.",
            show_default=", ".join(map(str, ACCEPTANCES)),
        ),
    ] = None,
    cost: Annotated[
        list[float] | None,
        typer.Option(
            min=0.001,
            max=1,
            help="Time of a drafter's forward over the target's. May be repeated.",
            show_default=", ".join(map(str, COSTS)),
        ),
    ] = None,
    answers: Annotated[
        list[int] | None,
        typer.Option(
            min=1,
            max=4096,
            help="Concurrent answers to simulate. May be repeated.",
            show_default=", ".join(map(str, USUAL_ANSWERS)),
        ),
    ] = None,
    replicas: Annotated[
        list[int] | None,
        typer.Option(
            min=1,
            max=256,
            help="Replicas of the target, and of the drafter. May be repeated.",
            show_default=", ".join(map(str, REPLICAS)),
        ),
    ] = None,
    strategy: Annotated[
        list[str] | None,
        typer.Option(
            help="Strategy to compare with the target alone. May be repeated.",
            show_default="all lossless ones",
        ),
    ] = None,
    sample: Annotated[
        int,
        typer.Option(
            min=1, help="Most cells to simulate; of more, always the same ones are drawn."
        ),
    ] = USUAL_SAMPLE,
    processes: Annotated[
        int, typer.Option(min=1, help="Processes that simulate.", show_default="one a core")
    ] = os.cpu_count() or 1,
    crowd: Annotated[
        list[int] | None,
        typer.Option(
            min=1,
            max=64,
            help="Concurrent answers in real processes. May be repeated.",
            show_default=", ".join(map(str, CROWDS)),
        ),
    ] = None,
    tokens: Annotated[
        int, typer.Option(min=2, max=1000, help="Length of each answer in real processes.")
    ] = 50,
    picture: Annotated[
        Path | None,
        typer.Option(
            dir_okay=False,
            help="SVG to write: speed-up by auto over the answers, beside what others published.",
        ),
    ] = None,
    json_: Json = False,
) -> None:
    """Compare the strategies with the target alone while many answers are under way.

    On the virtual clock, crowds of all sizes meet targets whose forwards are flat or steep, and
    drafters that are good or bad, quick or slow. In real processes, crowds grow at one target. The
    default takes some ten minutes on two cores, most of them for branch prediction with 64 answers;
    all cells of the usual values (--sample 1260) take hours.

    Exits with 1 if a strategy changes the text in real processes.
    """
    check_writable(picture, "--picture")
    parts = part or list(CrowdPart)
    if picture is not None and CrowdPart.CELLS not in parts:
        raise typer.BadParameter("draws the cells: add --part cells", param_hint="--picture")
    grid = CrowdGrid(
        forwards=_known(forward, tuple(TARGETS), "--forward"),
        acceptances=acceptance or ACCEPTANCES,
        costs=cost or COSTS,
        answers=answers or USUAL_ANSWERS,
        replicas=replicas or REPLICAS,
    )
    strategies = _known(strategy, CHOICES, "--strategy")
    cells: list[CellSpeeds] = []
    if CrowdPart.CELLS in parts:
        todo = tasks(grid.cells(sample), strategies)
        speeds = tracked(spread(tokens_per_s, todo, processes), len(todo), "simulations")
        cells = gathered(list(zip(todo, speeds, strict=True)))
    if picture is not None:
        picture.write_text(drawn(cells))

    async def work() -> int:
        real = RealSpeeds((), identical=True)
        if CrowdPart.REAL in parts:
            crowds, directory = sorted(set(crowd or CROWDS)), Path(mkdtemp(prefix="specmesh-"))
            real = await measure_real(crowds, tokens, directory, Console(stderr=True).print)
        if json_:
            typer.echo(json.dumps(_json(real, cells)))
        else:
            _print(real, cells)
        return 0 if real.identical else ExitStatus.FAILED

    run(work())


def _known(names: Sequence[str] | None, known: Sequence[str], flag: str) -> Sequence[str]:
    """Return ``names``, or all that are known. Raises BadParameter."""
    for name in names or ():
        if name not in known:
            raise typer.BadParameter(f"{name!r} is not one of: {', '.join(known)}", param_hint=flag)
    return tuple(dict.fromkeys(names or known))


def _json(real: RealSpeeds, cells: Sequence[CellSpeeds]) -> dict[str, Any]:
    return {
        "real": [asdict(each) for each in real.speeds],
        "identical": real.identical,
        "cells": [_cell_json(each) for each in cells],
        "regret": asdict(regret(cells)),
    }


def _cell_json(speeds: CellSpeeds) -> dict[str, Any]:
    found = asdict(speeds)
    return {**found.pop("cell"), **found}


def _print(real: RealSpeeds, cells: Sequence[CellSpeeds]) -> None:
    console = Console()
    if real.speeds:
        console.print(real_table(real.speeds))
    if not real.identical:
        console.print("[bold red]DIFFERENT TEXT in real processes")
    if cells:
        found = compared(cells)
        console.print(ratios_table(ratios(found), len(cells)))
        console.print(worst_table(found))
        if said := describe_regret(regret(cells)):
            console.print(said)


if __name__ == "__main__":
    app(prog_name="specmesh bench crowd")
