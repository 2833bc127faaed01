"""Options that the commands share."""

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
        help="File that traces are kept in.",
        show_default="specmesh/traces.sqlite in your state directory",
    ),
]
TraceId = Annotated[
    str, typer.Argument(metavar="ID", help="Beginning of its id, or 'last' or 'slowest'.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]

SlowerThan = Annotated[
    float | None, typer.Option("--slower-than", min=0, metavar="MS", help="Took at least so long.")
]
OutcomeIs = Annotated[Outcome | None, typer.Option("--outcome", help="Ended so.")]
StrategyIs = Annotated[str | None, typer.Option("--strategy", help="Used this strategy.")]
AcceptanceBelow = Annotated[
    float | None,
    typer.Option(min=0, max=1, help="A smaller share of its draft tokens was accepted."),
]
SessionIs = Annotated[str | None, typer.Option("--session", help="Of this session.")]
NodeIs = Annotated[str | None, typer.Option("--node", help="This instance took part.")]
Since = Annotated[
    str | None, typer.Option(metavar="AGO", help="Began since: 30s, 10m, 2h or 1d ago.")
]
Incomplete = Annotated[bool, typer.Option("--incomplete", help="Lost spans.")]
Internal = Annotated[
    bool, typer.Option("--internal", help="Also what the mesh asks itself outside any answer.")
]

_AGO = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def since_s(written: str | None) -> float | None:
    """The moment that ``--since`` names, in seconds since 1970. Raises BadParameter."""
    if written is None:
        return None
    read = _AGO.fullmatch(written.strip())
    if read is None:
        raise typer.BadParameter(
            f"{written!r} is no number with s, m, h or d", param_hint="--since"
        )
    return time.time() - float(read[1]) * _SECONDS[read[2]]
