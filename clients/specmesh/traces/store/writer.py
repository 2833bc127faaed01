"""The writer of a trace store, which deletes the oldest traces to make room."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path

from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans

from specmesh.traces.spans import spans_from
from specmesh.traces.store.blob import distinct, pack, unpack
from specmesh.traces.store.limits import StoreLimits, batches, pages_for
from specmesh.traces.store.schema import SUMMARY_COLUMNS, StoreError, open_to_write
from specmesh.traces.summary import TraceSummary, summarise

_DELETED_AT_ONCE = 32
_MAX_INTEGER = 2**63 - 1
_VACUUM_ABOVE = 0.25
"""Share of free pages above which they are returned to the disk."""


@dataclass(frozen=True, slots=True)
class StoredTrace:
    """A trace as it is stored."""

    summary: TraceSummary
    blob: bytes

    @classmethod
    def of(cls, groups: Sequence[ResourceSpans]) -> StoredTrace:
        """Make the stored form of ``groups``, which must be of one trace and hold a span.

        Repeated spans are stored once: OTLP delivers at least once, so that exporters repeat what
        arrived unnoticed.
        """
        kept = distinct(groups)
        return cls(summarise(list(spans_from(kept))), pack(kept))


class StoreWriter:
    """A writer to the store at ``path``; all methods raise StoreError if it can't be written.

    Several processes may write to one store: each batch is one transaction, which makes its room.
    """

    def __init__(
        self, path: Path, limits: StoreLimits, clock: Callable[[], float] = time.time
    ) -> None:
        self._path = path
        self._limits = limits
        self._clock = clock
        self._connection = open_to_write(path)
        if self._number("page_count") > limits.num_pages:
            self._shrink()

    def close(self) -> None:
        """Write the log to the database, and close it."""
        self._connection.close()

    def add(self, traces: Sequence[StoredTrace]) -> int:
        """Store ``traces``, each of which is a new trace or late spans of a stored one.

        Returns the number that was skipped, because a reader prevented the log from being emptied
        or because a trace exceeds the size of a batch.
        """
        num_left_out = 0
        max_pages = self._limits.batch_pages
        for batch in batches(traces, max_pages):
            fits = len(batch) > 1 or pages_for(len(batch[0].blob)) <= max_pages
            if fits and self._log_is_short():
                with self._transaction():
                    self._expire()
                    for trace in batch:
                        self._add(trace)
            else:
                num_left_out += len(batch)
        self.tidy()
        return num_left_out

    def tidy(self) -> None:
        """Delete some of the expired traces, and return some of the free pages to the disk."""
        if not self._log_is_short():
            return
        with self._transaction():
            self._expire()
        if self._number("freelist_count") > _VACUUM_ABOVE * self._number("page_count"):
            self._vacuum(self._limits.batch_pages)
        self._log_is_short()

    def _shrink(self) -> None:
        """Shrink a store that was created with a higher limit below this one, in one step."""
        surplus = self._number("page_count") - self._limits.num_pages
        with self._transaction():
            self._free(surplus - self._number("freelist_count"))
        self._vacuum(surplus)
        self._log_is_short()

    def _vacuum(self, num_pages: int) -> None:
        """Return ``num_pages`` free pages to the disk, in a transaction of its own."""
        with self._complaining():
            # As a script, because sqlite3 runs only the first step of a statement without columns,
            # which frees one page.
            self._connection.executescript(f"PRAGMA incremental_vacuum({num_pages})")

    def _add(self, trace: StoredTrace) -> None:
        trace = self._joined(trace)
        self._make_room(pages_for(len(trace.blob)))
        cursor = self._connection.execute(
            f"INSERT INTO traces (stored_s, {', '.join(SUMMARY_COLUMNS)})"  # noqa: S608 - constants
            f" VALUES (?{', ?' * len(SUMMARY_COLUMNS)})",
            (self._clock(), *_row(trace.summary)),
        )
        self._connection.execute(
            "INSERT INTO spans (id, otlp) VALUES (?, ?)", (cursor.lastrowid, trace.blob)
        )

    def _joined(self, trace: StoredTrace) -> StoredTrace:
        """Delete the stored part of ``trace``, if any, and return ``trace`` joined with it."""
        found = self._connection.execute(
            "SELECT id, otlp FROM traces JOIN spans USING (id) WHERE trace_id = ?",
            (trace.summary.trace_id,),
        ).fetchone()
        if found is None:
            return trace
        number, blob = found
        self._delete([number])
        groups = [*unpack(blob).resource_spans, *unpack(trace.blob).resource_spans]
        return StoredTrace.of(groups)

    def _make_room(self, num_pages: int) -> None:
        available = self._limits.num_pages - self._number("page_count")
        self._free(num_pages - available - self._number("freelist_count"))

    def _free(self, num_pages: int) -> None:
        """Delete the oldest traces until ``num_pages`` more pages are free."""
        aim = self._number("freelist_count") + num_pages
        while num_pages > 0 and self._number("freelist_count") < aim:
            oldest = self._connection.execute(
                "SELECT id FROM traces ORDER BY id LIMIT ?", (_DELETED_AT_ONCE,)
            ).fetchall()
            if not oldest:
                return
            self._delete([number for (number,) in oldest])

    def _expire(self) -> None:
        oldest_s = self._clock() - self._limits.max_age_s
        expired = self._connection.execute(
            "SELECT id FROM (SELECT id, stored_s FROM traces ORDER BY id LIMIT ?)"
            " WHERE stored_s < ?",
            (_DELETED_AT_ONCE, oldest_s),
        ).fetchall()
        self._delete([number for (number,) in expired])

    def _delete(self, numbers: Sequence[int]) -> None:
        rows = [(number,) for number in numbers]
        self._connection.executemany("DELETE FROM spans WHERE id = ?", rows)
        self._connection.executemany("DELETE FROM traces WHERE id = ?", rows)

    def _log_is_short(self) -> bool:
        """Write the log to the database; return False if a reader still needs so much of it that
        another batch would not fit."""
        with self._complaining():
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        log = Path(f"{self._path}-wal")
        size = log.stat().st_size if log.exists() else 0
        return size <= self._limits.log_bytes // 2

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._complaining():
            self._connection.execute(f"PRAGMA max_page_count = {self._limits.num_pages}")
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:  # SQLite itself ends some that fail
                    self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _complaining(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StoreError(f"cannot store traces in {self._path}: {error}") from error

    def _number(self, pragma: str) -> int:
        with self._complaining():
            return int(self._connection.execute(f"PRAGMA {pragma}").fetchone()[0])


def _row(summary: TraceSummary) -> tuple[object, ...]:
    return tuple(map(_storable, astuple(summary)))


def _storable(value: object) -> object:
    """Return ``value``; of an integer that exceeds SQLite's, which spans may have, the nearest, and
    of texts their lines."""
    match value:
        case int():
            return max(-_MAX_INTEGER, min(value, _MAX_INTEGER))
        case tuple():
            return "\n".join(("", *value, "")) if value else ""
    return value
