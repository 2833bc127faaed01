"""``specmesh load report``: a page with charts from the reports of earlier runs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from specmesh.cli.output_files import check_writable
from specmesh.load.commands.report_files import names_of, read_report
from specmesh.load.html.contents import page
from specmesh.load.html.document import write_page


def report(
    results: Annotated[
        list[Path],
        typer.Argument(
            exists=True,
            dir_okay=False,
            metavar="RESULT.json...",
            help="Files written by --json: runs, or sweeps and searches. They share a page.",
        ),
    ],
    html: Annotated[Path, typer.Option(metavar="FILE", help="The HTML page to write.")],
) -> None:
    """Write a page with charts, as one HTML file that needs no network."""
    check_writable(html, "--html")
    for file, count in Counter(results).items():
        if count > 1:
            raise typer.BadParameter(f"{file} is named {count} times", param_hint="RESULT.json...")
    named = zip(names_of(results), results, strict=True)
    reports = [(name, read_report(file)) for name, file in named]
    try:
        made = page(reports)
    except KeyError as error:
        raise typer.BadParameter(f"{_named(results)}: the field {error} is missing") from None
    except (ArithmeticError, AttributeError, TypeError, ValueError) as error:
        raise typer.BadParameter(f"{_named(results)}: {error}") from None
    try:
        write_page(html, made)
    except OSError as error:
        raise typer.BadParameter(str(error), param_hint="--html") from None
    typer.echo(html)


def _named(files: list[Path]) -> str:
    return ", ".join(map(str, files))
