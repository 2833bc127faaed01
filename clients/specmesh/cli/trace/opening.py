"""Access of commands to the trace store; a command ends if it can't be opened."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from specmesh.cli.exit_status import ExitStatus
from specmesh.cli.printable import printable
from specmesh.traces.formats.errors import UnreadableTraces
from specmesh.traces.spans import spans_from
from specmesh.traces.store.query import Query
from specmesh.traces.store.reader import LAST, NoSuchTrace, StoreReader
from specmesh.traces.store.schema import DamagedTrace, StoreError, default_path
from specmesh.traces.summary import Outcome
from specmesh.traces.trace import Trace

_NUM_NEWEST = 20

_STATUSES: dict[type[Exception], ExitStatus] = {
    NoSuchTrace: ExitStatus.NOT_FOUND,
    UnreadableTraces: ExitStatus.USAGE,
    StoreError: ExitStatus.FAILED,
    DamagedTrace: ExitStatus.FAILED,
}


@contextmanager
def explained() -> Iterator[None]:
    """Turn errors of traces in the block into one line and the command's exit status."""
    try:
        yield
    except tuple(_STATUSES) as error:
        typer.echo(f"specmesh: {error}", err=True)
        raise typer.Exit(_STATUSES[type(error)]) from error


@contextmanager
def opened(store: Path | None) -> Iterator[StoreReader]:
    """Open the store for a block, with the errors of both handled by ``explained``."""
    with explained(), StoreReader(store or default_path()) as reader:
        yield reader


def load(reader: StoreReader, name: str) -> Trace:
    """Load the trace that ``name`` selects. For 'last', print a hint if a newer request failed.
    Raises NoSuchTrace and DamagedTrace."""
    if name == LAST:
        _tell_newer(reader)
    return Trace.of(list(spans_from(reader.spans(reader.find(name)).resource_spans)))


def tell_damaged(count: int) -> None:
    """Tell the user of traces that are left out, if there are any."""
    if count:
        traces = "1 trace is" if count == 1 else f"{count} traces are"
        typer.echo(f"specmesh: left out: {traces} damaged", err=True)


def _tell_newer(reader: StoreReader) -> None:
    """Print a hint to a request that failed after the last answer, before its own answer began."""
    last = reader.find(LAST)
    for newest in reader.select(Query(limit=_NUM_NEWEST)):
        if newest.trace_id == last:
            return
        if newest.outcome is Outcome.FAILED:
            why = printable(newest.reason or newest.outcome)
            shown = f"specmesh trace show {newest.trace_id[:8]}"
            typer.echo(f"specmesh: a newer request failed ({why}): {shown}", err=True)
            return
