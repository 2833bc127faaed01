"""``specmesh trace stats``, which shows percentiles over many traces."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Annotated

import typer
from rich.text import Text

from specmesh.cli.tables import make_table
from specmesh.cli.trace.listing import percent
from specmesh.cli.trace.opening import load, opened, tell_damaged
from specmesh.cli.trace.options import MAX_TRACES, Json, TraceFilters, TraceStore
from specmesh.cli.trace.tables import console, short_name
from specmesh.traces.analysis.stats import Percentiles, TraceStats, trace_stats
from specmesh.traces.store.reader import StoreReader
from specmesh.traces.store.schema import DamagedTrace
from specmesh.traces.summary import TraceSummary
from specmesh.traces.trace import Trace


def stats(
    *,
    filters: TraceFilters,
    limit: Annotated[
        int, typer.Option(min=1, max=MAX_TRACES, help="Use at most this many traces, the newest.")
    ] = 100,
    store: TraceStore = None,
    json_: Json = False,
) -> None:
    """Show percentiles over many traces: of each node's part of the critical path, and of spans."""
    with opened(store) as reader:
        found = trace_stats(_readable(reader, reader.select(filters.query(limit))))
    if json_:
        typer.echo(json.dumps(None if found is None else asdict(found)))
    elif found is None:
        typer.echo("no matching traces", err=True)
    else:
        _print(found)


def _readable(reader: StoreReader, listed: Iterable[TraceSummary]) -> Iterator[Trace]:
    """Yield the traces that are not damaged, and tell the user of those that are."""
    num_damaged = reader.extent().num_damaged
    for each in listed:
        try:
            yield load(reader, each.trace_id)
        except DamagedTrace:
            num_damaged += 1
    tell_damaged(num_damaged)


def _print(found: TraceStats) -> None:
    out = console()
    count = found.answers.count
    out.print(f"{count} {'trace' if count == 1 else 'traces'}: {_in_words(found.answers)}")
    if found.num_incomplete:
        lost = f"{found.num_incomplete} of them lack spans: the critical path excludes them"
        out.print(lost, style="bold magenta")
    path = make_table(
        "\ncritical path, in ms", "node", "what", "share", "p50", "p90", "p99", num_left=2
    )
    for share in found.path:
        path.add_row(
            Text(share.node),
            share.part,
            percent(share.share),
            *(f"{ms:.1f}" for ms in (share.ms.p50_ms, share.ms.p90_ms, share.ms.p99_ms)),
        )
    out.print(path)
    headings = ("node", "name", "count", "p50", "p90", "p99", "max", "queue p50", "forward p50")
    spans = make_table("\nspans, in ms", *headings, num_left=2)
    for each in found.spans:
        times = each.durations
        spans.add_row(
            Text(each.node),
            Text(short_name(each.name)),
            str(times.count),
            *(f"{ms:.1f}" for ms in (times.p50_ms, times.p90_ms, times.p99_ms, times.max_ms)),
            *(_median(part) for part in (each.queue, each.forward)),
        )
    out.print(spans)


def _in_words(of: Percentiles) -> str:
    times = {"p50": of.p50_ms, "p90": of.p90_ms, "p99": of.p99_ms, "max": of.max_ms}
    return ", ".join(f"{name} {ms:.1f} ms" for name, ms in times.items())


def _median(of: Percentiles | None) -> str:
    return "" if of is None else f"{of.p50_ms:.1f}"
