"""Options that the commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

TraceStore = Annotated[
    Path | None,
    typer.Option(
        "--store",
        envvar="SPECMESH_TRACES__STORE",
        help="File that traces are kept in.",
        show_default="specmesh/traces.sqlite in your state directory",
    ),
]
TraceId = Annotated[
    str, typer.Argument(metavar="ID", help="Beginning of its id, or 'last' or 'slowest'.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
