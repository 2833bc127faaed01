"""How commands show their progress and their figures."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import TypeVar

import typer
from rich.console import Console
from rich.progress import track

from specmesh.bench.simulate.report import Show

_WIDTH = 120
"""Columns of tables that are written to a file or a pipe."""

Item = TypeVar("Item")


def tracked(results: Iterable[Item], total: int, what: str) -> Iterable[Item]:
    """``results`` as they come, with a progress bar if standard error is a terminal."""
    console = Console(stderr=True)
    return track(results, what, total, console=console, disable=not console.is_terminal)


def show(found: dict[str, object], as_json: bool, as_tables: Show) -> None:
    """Print ``found`` as one JSON object, or by ``as_tables``."""
    if as_json:
        typer.echo(json.dumps(found))
    else:
        as_tables(found, Console() if sys.stdout.isatty() else Console(width=_WIDTH))
