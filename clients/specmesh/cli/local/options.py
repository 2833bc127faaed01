"""Options that the commands with a mesh on this machine share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer
from typer import CallbackParam

from specmesh.cli.local.checks import check_calibration, check_redis_url, check_trees
from specmesh.serving.process.options import is_typed

_SPECULATION = "Speculation"

CalibrationFile = Annotated[
    Path | None,
    typer.Option(
        exists=True,
        dir_okay=False,
        help="Read the pair's calibration, which 'specmesh calibrate confidence' writes.",
        show_default="the shipped one, for the shipped pair",
        callback=check_calibration,
        rich_help_panel=_SPECULATION,
    ),
]
TreesFile = Annotated[
    Path | None,
    typer.Option(
        exists=True,
        dir_okay=False,
        help="Read the pair's trees, which 'specmesh calibrate tree' writes.",
        show_default="none",
        callback=check_trees,
        rich_help_panel=_SPECULATION,
    ),
]
Lookahead = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=64,
        help="Verify this many draft tokens at a time, with strategies that take a lookahead.",
        show_default="chosen by the strategy",
        rich_help_panel=_SPECULATION,
    ),
]
Threads = Annotated[
    int, typer.Option(min=1, help="Use this many threads in each process with a model.")
]


def _from_environment(
    context: typer.Context, parameter: CallbackParam, url: str | None
) -> str | None:
    """Return ``url``; refuse a password on the command line, where ps shows it to every user."""
    if url and is_typed(context, parameter.name or "") and urlsplit(url).password:
        raise typer.BadParameter(
            "ps would show the password to every user: set the variable REDIS_URL instead"
        )
    return check_redis_url(url)


RedisUrl = Annotated[
    str | None,
    typer.Option(
        envvar="REDIS_URL",
        help="Store sessions in this Redis; a URL with a password must be given as REDIS_URL.",
        show_default="its own Redis",
        callback=_from_environment,
    ),
]
