"""The tables of a trace store, and its file."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

VERSION = 1
"""Version of the tables; a store of another version is refused."""

_APPLICATION_ID = 0x53504D54
"""SQLite application id, which distinguishes a store from other SQLite files."""
_BUSY_S = 5.0
"""Longest wait for another process that is writing."""

SUMMARY_COLUMNS = (
    *("trace_id", "name", "start_ns", "duration_ms", "outcome", "reason"),
    *("strategy", "model", "session", "acceptance", "num_tokens", "num_spans", "num_missing"),
    "nodes",
)
"""The columns of the fields of ``TraceSummary`` in its order. Lists are stored as lines, between an
empty first and last line. ``session`` holds them all; older rows have a single one as it is."""

_TABLES = """
CREATE TABLE traces (
    id INTEGER PRIMARY KEY,  -- in the order of storing
    stored_s REAL NOT NULL,  -- since 1970
    trace_id TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    start_ns INTEGER NOT NULL,
    duration_ms REAL NOT NULL,
    outcome TEXT NOT NULL,
    reason TEXT NOT NULL,
    strategy TEXT NOT NULL,
    model TEXT NOT NULL,
    session TEXT NOT NULL,
    acceptance REAL,
    num_tokens INTEGER,
    num_spans INTEGER NOT NULL,
    num_missing INTEGER NOT NULL,
    nodes TEXT NOT NULL
);
CREATE INDEX traces_by_start ON traces (start_ns);
CREATE INDEX traces_by_duration ON traces (duration_ms);
CREATE TABLE spans (
    id INTEGER PRIMARY KEY,  -- the trace's
    otlp BLOB NOT NULL
);
"""


class StoreError(Exception):
    """The store can't be used; the message says why and names the file."""


class DamagedTrace(StoreError):
    """The spans of one trace can't be read; others can."""


def default_path() -> Path:
    """Return the default store: ``specmesh/traces.sqlite`` in the user's state directory (XDG)."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "specmesh" / "traces.sqlite"


def open_to_write(path: Path) -> sqlite3.Connection:
    """Open the store at ``path`` for writing, and create it if there is none. Only its user may
    read it, since it may contain texts.

    Raises StoreError.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        connection = _connect(path)
        # Must be set before the first table is created.
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("BEGIN IMMEDIATE")
        if _number(connection, "schema_version") == 0:
            for statement in _TABLES.split(";"):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
        _check(connection, path)
    except (OSError, sqlite3.Error) as error:
        raise StoreError(f"cannot store traces in {path}: {error}") from error
    return connection


def open_to_read(path: Path) -> sqlite3.Connection:
    """Open the existing store at ``path`` for reading. Raises StoreError."""
    if not path.is_file():
        raise StoreError(
            f"no trace store at {path}: 'specmesh up' and 'specmesh trace import' create it"
        )
    try:
        connection = _connect(path)
        connection.execute("PRAGMA query_only = ON")
        _check(connection, path)
    except sqlite3.Error as error:
        raise StoreError(f"cannot read traces from {path}: {error}") from error
    return connection


def _connect(path: Path) -> sqlite3.Connection:
    # Autocommit, so that transactions begin only where the code says so.
    return sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)


def _check(connection: sqlite3.Connection, path: Path) -> None:
    if _number(connection, "application_id") != _APPLICATION_ID:
        raise StoreError(f"{path} is not a trace store")
    version = _number(connection, "user_version")
    if version != VERSION:
        raise StoreError(f"{path} has table version {version}, but this program needs {VERSION}")


def _number(connection: sqlite3.Connection, pragma: str) -> int:
    return int(connection.execute(f"PRAGMA {pragma}").fetchone()[0])
