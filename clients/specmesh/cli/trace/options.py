"""Options that the ``trace`` commands share."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Annotated

import typer

from specmesh.traces.summary import Outcome

TraceStore = Annotated[
    Path | None,
    typer.Option(
        "--store",
        envvar="SPECMESH_TRACES__STORE",
        help="Use this file as the trace store.",
        show_default="specmesh/traces.sqlite in your state directory",
    ),
]
TraceId = Annotated[
    str,
    typer.Argument(
        metavar="ID", help="Select the trace by the beginning of its id, or by 'last' or 'slowest'."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]

_FILTERS = "Filters"
SlowerThan = Annotated[
    float | None,
    typer.Option(
        "--slower-than",
        min=0,
        metavar="MS",
        help="Select requests that took at least this long.",
        rich_help_panel=_FILTERS,
    ),
]
OutcomeIs = Annotated[
    Outcome | None,
    typer.Option("--outcome", help="Select requests with this outcome.", rich_help_panel=_FILTERS),
]
StrategyIs = Annotated[
    str | None,
    typer.Option(
        "--strategy", help="Select requests with this strategy.", rich_help_panel=_FILTERS
    ),
]
AcceptanceBelow = Annotated[
    float | None,
    typer.Option(
        min=0,
        max=1,
        help="Select requests of whose draft tokens a smaller share was accepted.",
        rich_help_panel=_FILTERS,
    ),
]
SessionIs = Annotated[
    str | None,
    typer.Option("--session", help="Select this session.", rich_help_panel=_FILTERS),
]
NodeIs = Annotated[
    str | None,
    typer.Option(
        "--node",
        help="Select requests in which this instance took part.",
        rich_help_panel=_FILTERS,
    ),
]
Since = Annotated[
    str | None,
    typer.Option(
        metavar="AGO",
        help="Select requests that began within the last 30s, 10m, 2h or 1d.",
        rich_help_panel=_FILTERS,
    ),
]
Incomplete = Annotated[
    bool,
    typer.Option("--incomplete", help="Select traces that lack spans.", rich_help_panel=_FILTERS),
]
Internal = Annotated[
    bool,
    typer.Option(
        "--internal",
        help="Include calls inside the mesh that belong to no answer.",
        rich_help_panel=_FILTERS,
    ),
]

_AGO = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def since_s(written: str | None) -> float | None:
    """Return the moment that ``--since`` names, in seconds since 1970. Raises BadParameter."""
    if written is None:
        return None
    read = _AGO.fullmatch(written.strip())
    if read is None:
        raise typer.BadParameter(
            f"{written!r} is not a number with s, m, h or d", param_hint="--since"
        )
    return time.time() - float(read[1]) * _SECONDS[read[2]]
