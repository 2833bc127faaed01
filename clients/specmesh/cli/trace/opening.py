"""Opens the store for a command, and ends the command where that can't be."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from specmesh.cli.exit_status import ExitStatus
from specmesh.traces.formats.errors import UnreadableTraces
from specmesh.traces.spans import spans_from
from specmesh.traces.store.query import Query
from specmesh.traces.store.reader import LAST, NoSuchTrace, StoreReader
from specmesh.traces.store.schema import StoreError, default_path
from specmesh.traces.summary import Outcome
from specmesh.traces.trace import Trace

_NUM_NEWEST = 20

_STATUSES: dict[type[Exception], ExitStatus] = {
    NoSuchTrace: ExitStatus.NOT_FOUND,
    UnreadableTraces: ExitStatus.USAGE,
    StoreError: ExitStatus.FAILED,
}


@contextmanager
def explained() -> Iterator[None]:
    """A block whose errors end the command with a line and a status of its own."""
    try:
        yield
    except tuple(_STATUSES) as error:
        typer.echo(f"specmesh: {error}", err=True)
        raise typer.Exit(_STATUSES[type(error)]) from error


@contextmanager
def opened(store: Path | None) -> Iterator[StoreReader]:
    """The store, for a block that may raise what ``explained`` explains."""
    with explained(), StoreReader(store or default_path()) as reader:
        yield reader


def load(reader: StoreReader, name: str) -> Trace:
    """The trace that ``name`` stands for. Of the last one it says so if a request that failed is
    newer. Raises NoSuchTrace."""
    if name == LAST:
        _tell_newer(reader)
    return Trace.of(list(spans_from(reader.spans(reader.find(name)).resource_spans)))


def _tell_newer(reader: StoreReader) -> None:
    """Point to a request that failed after the last answer, before an answer of its own began."""
    last = reader.find(LAST)
    for newest in reader.select(Query(limit=_NUM_NEWEST)):
        if newest.trace_id == last:
            return
        if newest.outcome is Outcome.FAILED:
            why = newest.reason or newest.outcome
            shown = f"specmesh trace show {newest.trace_id[:8]}"
            typer.echo(f"specmesh: a newer request failed ({why}): {shown}", err=True)
            return
