"""``specmesh load compare``: two runs, and what has changed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from specmesh.load.tables import make_table

_File = Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="Report of a run.")]


def compare(
    before: _File,
    after: _File,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Say with 95 % confidence how AFTER differs from BEFORE, two reports of runs."""
    # numpy takes as long to import as all else.
    from specmesh.load.compare import METRICS, differences, other_settings

    reports = _read(before), _read(after)
    try:
        found = differences(*reports)
        others = other_settings(*reports)
    except (KeyError, TypeError, ValueError) as error:
        raise typer.BadParameter(f"{before} or {after}: {error}") from None
    if json_:
        listed = [{**asdict(each), "in_words": each.in_words} for each in found]
        typer.echo(json.dumps({"differences": listed, "other_settings": others}))
        return
    console = Console(highlight=False)
    table = make_table("", "", "before", "after", "")
    for each in found:
        table.add_row(
            METRICS[each.metric],
            each.statistic,
            f"{each.before:.1f} ms",
            f"{each.after:.1f} ms",
            each.in_words,
        )
    console.print(table)
    if others:
        console.print(f"[yellow]the runs also differ in: {', '.join(others)}")


def _read(file: Path) -> Mapping[str, Any]:
    try:
        report = json.loads(file.read_text())
    except ValueError as error:
        raise typer.BadParameter(f"{file}: {error}") from None
    if not isinstance(report, dict):
        raise typer.BadParameter(f"{file} is no report")
    return report
