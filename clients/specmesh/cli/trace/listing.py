"""``specmesh trace list``, which lists stored traces."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Annotated, Any, ClassVar

import typer
from rich.table import Table
from rich.text import Text

from specmesh.cli.tables import make_table
from specmesh.cli.trace.opening import opened, tell_damaged
from specmesh.cli.trace.options import MAX_TRACES, Json, TraceFilters, TraceStore
from specmesh.cli.trace.tables import console
from specmesh.traces.store.query import Order
from specmesh.traces.summary import Outcome, TraceSummary

_STYLES = {Outcome.OK: "", Outcome.CANCELLED: "yellow", Outcome.FAILED: "red"}
_ID_LETTERS = 8
_CELL_WIDTH = 30
"""Most columns of a text, which all reasons of failures fit into."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListFilters:
    """More filters, of lists alone."""

    help_panel: ClassVar = "Filters"

    acceptance_below: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            help="Select requests of whose draft tokens a smaller share was accepted.",
        ),
    ] = None
    session: Annotated[str | None, typer.Option(help="Select this session.")] = None
    incomplete: Annotated[
        bool, typer.Option("--incomplete", help="Select traces that lack spans.")
    ] = False
    internal: Annotated[
        bool,
        typer.Option("--internal", help="Include calls inside the mesh that belong to no answer."),
    ] = False


def list_(
    *,
    filters: TraceFilters,
    more: ListFilters,
    slowest: Annotated[bool, typer.Option("--slowest", help="List the slowest first.")] = False,
    limit: Annotated[
        int, typer.Option(min=1, max=MAX_TRACES, help="List at most this many traces.")
    ] = 20,
    store: TraceStore = None,
    json_: Json = False,
) -> None:
    """List traces, the newest first by default."""
    order = Order.SLOWEST if slowest else Order.NEWEST
    query = replace(filters.query(limit), **asdict(more), order=order)
    with opened(store) as reader:
        found = reader.select(query)
        if json_:
            typer.echo(json.dumps({"traces": [summary_json(each) for each in found]}))
        elif found:
            console().print(_table(found))
        else:
            typer.echo("no matching traces", err=True)
        tell_damaged(reader.extent().num_damaged)


def summary_json(summary: TraceSummary) -> dict[str, Any]:
    """Return a summary as JSON."""
    return asdict(summary)


def began(summary: TraceSummary) -> str:
    """Return the time when the trace began, in the local time zone."""
    moment = datetime.fromtimestamp(summary.start_ns / 1e9).astimezone()
    return moment.strftime("%Y-%m-%d %H:%M:%S")


def percent(share: float | None) -> str:
    """Format a share from 0 to 1 as a percentage."""
    return "" if share is None else f"{share:.0%}"


def _table(found: Sequence[TraceSummary]) -> Table:
    headings = ("id", "began", "request", "outcome", "ms", "tokens", "accepted")
    # Missing spans are rare, so the column appears only if a trace lacks some.
    missing = ("spans missing",) if any(each.num_missing for each in found) else ()
    table = make_table("", *headings, *missing, num_left=4)
    for each in found:
        lost = Text(str(each.num_missing) if each.num_missing else "", "bold magenta")
        table.add_row(
            each.trace_id[:_ID_LETTERS],
            _began_briefly(each),
            _cut(Text(each.strategy or each.name.rpartition("/")[2])),
            _cut(_outcome(each)),
            f"{each.duration_ms:.1f}",
            "" if each.num_tokens is None else str(each.num_tokens),
            percent(each.acceptance),
            *((lost,) if missing else ()),
        )
    return table


def _began_briefly(summary: TraceSummary) -> str:
    """Return the time when the trace began, without today's date or the current year."""
    moment, now = began(summary), datetime.now().astimezone()
    return moment.removeprefix(f"{now:%Y-%m-%d} ").removeprefix(f"{now.year}-")


def _cut(cell: Text) -> Text:
    """Return ``cell`` without its end, if it is long: other programs may have written anything."""
    cell.truncate(_CELL_WIDTH, overflow="ellipsis")
    return cell


def _outcome(summary: TraceSummary) -> Text:
    words = filter(None, (summary.outcome.value, summary.reason))
    return Text(" ".join(words), _STYLES[summary.outcome])
