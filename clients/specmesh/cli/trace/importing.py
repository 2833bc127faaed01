"""``specmesh trace import``, which stores traces from files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, BinaryIO

import typer
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans

from specmesh.cli.answers.input import standard_input
from specmesh.cli.trace.opening import explained
from specmesh.cli.trace.options import Json, TraceStore
from specmesh.traces.formats.errors import UnreadableTraces
from specmesh.traces.formats.files import read_traces
from specmesh.traces.store.limits import StoreLimits
from specmesh.traces.store.schema import default_path
from specmesh.traces.store.stored_trace import StoredTrace
from specmesh.traces.store.writer import StoreWriter


def import_(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Read OTLP JSON (one object, or one per line) or the JSON of Jaeger or Tempo; '-' "
            "reads standard input.",
        ),
    ],
    store: TraceStore = None,
    json_: Json = False,
) -> None:
    """Import traces from files into the store, for the other commands to show."""
    with explained():
        imported = [StoredTrace.of(groups) for file in files for groups in _read(file)]
        writer = StoreWriter(store or default_path(), StoreLimits())
        num_left_out = writer.add(imported)
        writer.close()
    ids = [trace.summary.trace_id for trace in imported]
    num_spans = sum(trace.summary.num_spans for trace in imported)
    if json_:
        told = {"trace_ids": ids, "num_spans": num_spans, "num_left_out": num_left_out}
        typer.echo(json.dumps(told))
        return
    traces, them = ("1 trace", "it") if len(ids) == 1 else (f"{len(ids)} traces", "them")
    typer.echo(f"{traces} with {num_spans} spans; show {them} with")
    for trace_id in ids[:10]:
        typer.echo(f"  specmesh trace show {trace_id[:8]}")
    if num_left_out:
        typer.echo(f"{num_left_out} were skipped: too large, or the store is in use", err=True)


def _read(file: Path) -> list[list[ResourceSpans]]:
    try:
        if str(file) == "-":
            return _traces(standard_input(), "standard input")
        with file.open("rb") as opened:
            return _traces(opened, str(file))
    except OSError as error:
        raise UnreadableTraces(f"cannot read {file}: {error.strerror}") from error


def _traces(opened: BinaryIO, name: str) -> list[list[ResourceSpans]]:
    try:
        found = read_traces(opened)
    except UnreadableTraces as error:
        raise UnreadableTraces(f"{name}: {error}") from error
    if not found:
        raise UnreadableTraces(f"{name} contains no spans")
    return found
