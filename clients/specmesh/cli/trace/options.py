"""Options that the ``trace`` commands share."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import typer

from specmesh.traces.store.query import Query
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

MAX_TRACES = 1_000_000
"""Most traces that a command reads."""

_AGO = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFilters:
    """The requests whose traces to select."""

    help_panel: ClassVar = "Filters"

    slower_than: Annotated[
        float | None,
        typer.Option(min=0, metavar="MS", help="Select requests that took at least this long."),
    ] = None
    outcome: Annotated[Outcome | None, typer.Option(help="Select requests with this outcome.")] = (
        None
    )
    strategy: Annotated[str | None, typer.Option(help="Select requests with this strategy.")] = None
    node: Annotated[
        str | None, typer.Option(help="Select requests in which this instance took part.")
    ] = None
    since: Annotated[
        str | None,
        typer.Option(
            metavar="AGO", help="Select requests that began within the last 30s, 10m, 2h or 1d."
        ),
    ] = None

    def query(self, limit: int) -> Query:
        """Return the query for the newest ``limit`` of them. Raises BadParameter."""
        return Query(
            min_ms=self.slower_than,
            outcome=self.outcome,
            strategy=self.strategy,
            node=self.node,
            since_s=since_s(self.since),
            limit=limit,
        )


def since_s(written: str | None) -> float | None:
    """Return the moment that ``--since`` names, in seconds since 1970. Raises BadParameter."""
    if written is None:
        return None
    read = _AGO.fullmatch(written.strip())
    if read is None:
        raise typer.BadParameter(
            f"{written!r} is not a number with s, m, h or d", param_hint="--since"
        )
    return max(0.0, time.time() - float(read[1]) * _SECONDS[read[2]])
