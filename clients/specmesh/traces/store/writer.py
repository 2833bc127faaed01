"""The writer of a trace store, which deletes the oldest traces to make room."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from specmesh.traces.store.blob import DamagedBlob, unpack
from specmesh.traces.store.limits import StoreLimits, batches, pages_for
from specmesh.traces.store.schema import SUMMARY_COLUMNS, StoreError, open_to_write
from specmesh.traces.store.stored_trace import StoredTrace

_DELETED_AT_ONCE = 32
_VACUUM_ABOVE = 0.25
"""Share of free pages above which they are returned to the disk."""


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

        Returns the number that was skipped: because a reader prevented the log from being emptied,
        because a trace together with its stored part, which stays, exceeds the size of a batch or
        ``max_joined_spans``, or because it could not be stored while others could.
        """
        fitting = [trace for trace in traces if self._fits(trace)]
        num_left_out = len(traces) - len(fitting)
        errors: list[StoreError] = []
        for batch in batches(fitting, self._limits.batch_pages, self._joined_pages):
            try:
                num_left_out += self._write(batch)
            except StoreError as error:
                if _is_busy(error):  # each attempt would wait as long again
                    raise
                num_left_out += self._write_each(batch, errors)
        if errors and num_left_out + len(errors) == len(traces):
            raise errors[-1]
        self.tidy()
        return num_left_out + len(errors)

    def _fits(self, trace: StoredTrace) -> bool:
        _, num_stored = self._stored_size(trace)
        if num_stored and num_stored + trace.summary.num_spans > self._limits.max_joined_spans:
            return False
        return self._joined_pages(trace) <= self._limits.batch_pages

    def _joined_pages(self, trace: StoredTrace) -> int:
        """Return the most pages that ``trace`` takes together with its stored part."""
        num_bytes, _ = self._stored_size(trace)
        return pages_for(num_bytes + len(trace.blob))

    def _stored_size(self, trace: StoredTrace) -> tuple[int, int]:
        """Return the bytes and the number of spans of the stored part, which isn't read for it: of
        a large trace that would take seconds."""
        with self._complaining():
            found: tuple[int, int] | None = self._connection.execute(
                "SELECT coalesce(length(otlp), 0), CASE WHEN otlp IS NULL THEN 0 ELSE num_spans END"
                " FROM traces LEFT JOIN spans USING (id)"
                " WHERE trace_id = ?",
                (trace.summary.trace_id,),
            ).fetchone()
        return found or (0, 0)

    def _write(self, batch: Sequence[StoredTrace]) -> int:
        """Store ``batch`` in one transaction, and return the number of traces left out: all while
        the log can't be emptied, else none."""
        if not self._log_is_short():
            return len(batch)
        with self._transaction():
            self._expire()
            for trace in batch:
                self._add(trace)
        return 0

    def _write_each(self, batch: Sequence[StoredTrace], errors: list[StoreError]) -> int:
        """Store each trace of ``batch`` by itself, since no trace may cost the others, and return
        the number left out without an error; the others are added to ``errors``. Raises StoreError
        if the store is locked."""
        num_left_out = 0
        for trace in batch:
            try:
                num_left_out += self._write([trace])
            except StoreError as error:
                if _is_busy(error):
                    raise
                errors.append(error)
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
            (self._clock(), *trace.row()),
        )
        self._connection.execute(
            "INSERT INTO spans (id, otlp) VALUES (?, ?)", (cursor.lastrowid, trace.blob)
        )

    def _joined(self, trace: StoredTrace) -> StoredTrace:
        """Delete the stored part of ``trace``, if any, and return ``trace`` joined with it, or in
        place of it if it can't be read."""
        found = self._connection.execute(
            "SELECT id, otlp FROM traces LEFT JOIN spans USING (id) WHERE trace_id = ?",
            (trace.summary.trace_id,),
        ).fetchone()
        if found is None:
            return trace
        number, blob = found
        self._delete([number])
        try:
            stored = unpack(blob or b"")
        except DamagedBlob:
            return trace
        return StoredTrace.of([*stored.resource_spans, *unpack(trace.blob).resource_spans])

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


def _is_busy(error: StoreError) -> bool:
    """Return whether another process kept the store locked for as long as is waited for it."""
    return getattr(error.__cause__, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY
