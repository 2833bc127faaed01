"""Opens the store for a command, and ends the command where that can't be."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from specmesh.cli.exit_status import ExitStatus
from specmesh.traces.formats.errors import UnreadableTraces
from specmesh.traces.spans import spans_from
from specmesh.traces.store.reader import NoSuchTrace, StoreReader
from specmesh.traces.store.schema import StoreError, default_path
from specmesh.traces.trace import Trace

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
    """The trace that ``name`` stands for. Raises NoSuchTrace."""
    return Trace.of(list(spans_from(reader.spans(reader.find(name)).resource_spans)))
