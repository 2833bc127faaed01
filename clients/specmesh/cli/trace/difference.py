"""``specmesh trace diff``, which compares two traces."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from specmesh.cli.tables import make_table
from specmesh.cli.trace.opening import load, opened
from specmesh.cli.trace.options import Json, TraceId, TraceStore
from specmesh.cli.trace.show import heading
from specmesh.cli.trace.tables import console
from specmesh.traces.analysis.difference import Difference, difference

_WORTH_MS = 0.05


def diff(
    first: TraceId,
    second: Annotated[
        str, typer.Argument(metavar="ID", help="Select the second trace in the same way.")
    ],
    store: TraceStore = None,
    json_: Json = False,
) -> None:
    """Compare two traces: show where the second lost time against the first."""
    with opened(store) as reader:
        traces = [load(reader, name) for name in (first, second)]
    found = difference(*traces)
    if json_:
        changes = [{**asdict(each), "lost_ms": each.lost_ms} for each in found.changes]
        told = {
            "first": traces[0].summary.trace_id,
            "second": traces[1].summary.trace_id,
            "incomplete": [len(trace.gaps) for trace in traces],
            **asdict(found),
            "lost_ms": found.lost_ms,
            "changes": changes,
        }
        typer.echo(json.dumps(told))
        return
    out = console()
    if traces[0].summary.trace_id == traces[1].summary.trace_id:
        out.print(f"both are trace {traces[0].summary.trace_id}", soft_wrap=True)
        return
    for trace in traces:
        for line in heading(trace):
            out.print(line, soft_wrap=True)
        out.print()
    more = "more" if found.lost_ms >= 0 else "less"
    out.print(f"the second took {abs(found.lost_ms):.1f} ms {more}, on the critical path:\n")
    out.print(_table(found))


def _table(found: Difference) -> Table:
    table = make_table("", "at", "what", "first", "second", "lost", num_left=2)
    for each in found.changes:
        if max(each.first_ms, each.second_ms) >= _WORTH_MS:
            times = (f"{each.first_ms:.1f}", f"{each.second_ms:.1f}", f"{each.lost_ms:+.1f}")
            table.add_row(Text(each.service), each.part, *times)
    return table
