"""``specmesh load report``: reports of earlier runs as a page with charts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from specmesh.load.commands.report_files import read_report
from specmesh.load.commands.session import check_writable
from specmesh.load.html.contents import page
from specmesh.load.html.document import write_page


def report(
    results: Annotated[
        list[Path],
        typer.Argument(
            exists=True,
            dir_okay=False,
            metavar="RESULT.json...",
            help="What --json wrote: runs, or sweeps and searches; several are shown together.",
        ),
    ],
    html: Annotated[Path, typer.Option(metavar="FILE", help="The page to write.")],
) -> None:
    """Make a page with charts, in one file that needs no network."""
    check_writable(html, "--html")
    reports = [(file.stem, read_report(file)) for file in results]
    try:
        made = page(reports)
    except KeyError as error:
        raise typer.BadParameter(f"{_named(results)}: there is no {error}") from None
    except (TypeError, ValueError) as error:
        raise typer.BadParameter(f"{_named(results)}: {error}") from None
    try:
        write_page(html, made)
    except OSError as error:
        raise typer.BadParameter(str(error), param_hint="--html") from None
    typer.echo(html)


def _named(files: list[Path]) -> str:
    return ", ".join(map(str, files))
