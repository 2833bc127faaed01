"""The reader of a trace store."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from specmesh.traces.store.blob import DamagedBlob, unpack
from specmesh.traces.store.query import READABLE, Order, Query
from specmesh.traces.store.schema import (
    SUMMARY_COLUMNS,
    DamagedTrace,
    StoreError,
    open_to_read,
)
from specmesh.traces.summary import Outcome, TraceSummary

LAST = "last"
SLOWEST = "slowest"
_WORDS = {LAST: Order.NEWEST, SLOWEST: Order.SLOWEST}
"""Words that may be used in place of an id."""
_MAX_LISTED = 3
"""Most ids that are listed where one has to be chosen."""


class NoSuchTrace(Exception):
    """No trace, or several, match the requested id; the message says which."""


@dataclass(frozen=True, slots=True)
class Extent:
    """The size of a store."""

    num_traces: int
    num_spans: int
    num_bytes: int
    """Size on disk, including the log."""
    num_damaged: int
    """Traces that are in no list, since their summaries can't be read."""


class StoreReader:
    """The store at ``path``, open while a ``with`` block runs. Raises StoreError, also from each
    call if the file is damaged. Lists lack the traces whose summaries can't be read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection = open_to_read(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._connection.close()

    def select(self, query: Query) -> list[TraceSummary]:
        """Return the summaries of the traces that match ``query``, in its order."""
        tail, parameters = query.sql()
        columns = ", ".join(SUMMARY_COLUMNS)
        with self._reading() as connection:
            rows = connection.execute(f"SELECT {columns} FROM traces{tail}", parameters)  # noqa: S608 - made of constants
            return [_summary(row) for row in rows]

    def find(self, name: str) -> str:
        """Return the trace id that begins with ``name``, or that ``last`` or ``slowest`` selects.

        Raises NoSuchTrace.
        """
        if name in _WORDS:
            order = _WORDS[name]
            found = self.select(Query(order=order, begun=name == LAST, limit=1))
            found = found or self.select(Query(order=order, limit=1))
            if not found:
                raise NoSuchTrace(f"there are no traces in {self._path} yet")
            return found[0].trace_id
        wanted = name.lower()
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT trace_id FROM traces WHERE trace_id >= ? AND trace_id < ? "
                "ORDER BY trace_id LIMIT ?",
                (wanted, f"{wanted}g", _MAX_LISTED + 1),
            ).fetchall()
        if not rows:
            raise NoSuchTrace(f"no trace has an id that begins with {name!r}")
        if len(rows) > 1:
            ids = [str(trace_id) for (trace_id,) in rows[:_MAX_LISTED]]
            listed = ", ".join(ids if len(rows) == len(ids) else [*ids, "and others"])
            raise NoSuchTrace(f"several traces have an id that begins with {name!r}: {listed}")
        return str(rows[0][0])

    def spans(self, trace_id: str) -> TracesData:
        """Return all spans of a trace. Raises NoSuchTrace, and DamagedTrace if they can't be read,
        or some of them."""
        with self._reading() as connection:
            row = connection.execute(
                "SELECT otlp FROM traces LEFT JOIN spans USING (id) WHERE trace_id = ?", (trace_id,)
            ).fetchone()
        if row is None:
            raise NoSuchTrace(f"there is no trace {trace_id}")
        try:
            return unpack(row[0] or b"")
        except DamagedBlob as error:
            raise DamagedTrace(f"trace {trace_id} is damaged: {error}") from error

    def extent(self) -> Extent:
        """Return the size of the store."""
        with self._reading() as connection:
            num_traces, num_spans, num_readable = connection.execute(
                "SELECT count(*), coalesce(sum(num_spans), 0), "  # noqa: S608 - made of constants
                f"count(*) FILTER (WHERE {READABLE}) FROM traces"
            ).fetchone()
        num_damaged = num_traces - num_readable
        return Extent(num_traces, num_spans, bytes_on_disk(self._path), num_damaged)

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        try:
            yield self._connection
        except sqlite3.Error as error:
            raise StoreError(f"cannot read traces from {self._path}: {error}") from error


def bytes_on_disk(path: Path) -> int:
    """Return the size of a store, including its log."""
    files = (path, Path(f"{path}-wal"), Path(f"{path}-shm"))
    return sum(file.stat().st_size for file in files if file.exists())


def _summary(row: tuple[Any, ...]) -> TraceSummary:
    told = dict(zip((each.name for each in fields(TraceSummary)), row, strict=True))
    told["outcome"] = Outcome(told["outcome"])
    for listed in ("sessions", "nodes"):
        told[listed] = tuple(filter(None, told[listed].split("\n")))
    return TraceSummary(**told)
