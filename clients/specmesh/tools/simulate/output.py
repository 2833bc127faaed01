"""The output of the commands, as JSON or as tables."""

from __future__ import annotations

import json
import sys

import typer
from rich.console import Console

from specmesh.tools.simulate.report import Show

_WIDTH = 140
"""Width of tables that are written to a file or a pipe."""


def show(found: dict[str, object], as_json: bool, as_tables: Show) -> None:
    """Print ``found`` as one JSON object, or as tables by ``as_tables``."""
    if as_json:
        typer.echo(json.dumps(found))
    else:
        as_tables(found, Console() if sys.stdout.isatty() else Console(width=_WIDTH))
