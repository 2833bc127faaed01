"""The logs of a mesh's processes, which are JSON lines with an ``event``."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Set
from contextlib import suppress
from io import FileIO
from pathlib import Path

_TAIL_BYTES = 64 * 1024
_KNOWN_FIELDS = frozenset({"time", "level", "event", "role", "name", "exception"})
_IDS = frozenset({"trace_id", "span_id", "session", "request_id"})
"""Fields by which programs find a request; whoever needs them reads the log."""
_ALARMING = {"warning", "error", "critical"}
_ALARM_INTERVAL_S = 60.0
_LINE_END = "\n"


def serving_address(line: str) -> str | None:
    """Return the address in the line that a server logs once it serves; None for other lines."""
    fields = _fields(line)
    if fields.get("event") != "serving":
        return None
    return str(fields["address"])


def refusal(line: str) -> str | None:
    """Return the reason in the line that a process logs if it cannot start; None for others."""
    fields = _fields(line)
    if fields.get("event") != "cannot start" or "reason" not in fields:
        return None
    return str(fields["reason"])


def tail(file: Path, num_lines: int) -> str:
    """Return the last lines of a log in readable form."""
    readable = "\n".join(map(_readable, _last_lines(file))).splitlines()
    return "\n".join(readable[-num_lines:])


def latest_event(file: Path) -> str:
    """Return the latest event in a log, as one line; empty if there is none yet."""
    events = (str(_fields(line).get("event", "")) for line in reversed(_last_lines(file)))
    return next(filter(None, events), "").partition("\n")[0]


class Alarms:
    """The warnings and errors in a process's log, passed to ``tell`` as one line each, without ids.

    Each event is told at most once a minute.
    """

    def __init__(self, name: str, tell: Callable[[str], None]) -> None:
        self._name = name
        self._tell = tell
        self._told_at: dict[object, float] = {}

    def look_at(self, line: str, now: float, *, is_starting: bool = False) -> None:
        """Check a line of the log at ``now``, in seconds of any clock. While the process is
        starting only warnings count, because an error ends the start and is reported with it."""
        fields = _fields(line)
        event, level = fields.get("event"), fields.get("level")
        if level not in _ALARMING or (is_starting and level != "warning"):
            return
        if event in self._told_at and now - self._told_at[event] < _ALARM_INTERVAL_S:
            return
        self._told_at[event] = now
        told = _readable(line, left_out=_KNOWN_FIELDS | _IDS).partition(_LINE_END)[0]
        self._tell(f"{self._name}: {told}")


class LogFile:
    """A file to append to, whose failures are told once and raise nothing.

    Whoever copies a process's output must go on reading it, or the process waits for ever in its
    next line. So what can't be written, because the disk is full or the folder is gone, is dropped.
    """

    def __init__(self, path: Path, tell: Callable[[str], None]) -> None:
        self._path = path
        self._tell = tell
        self._file: FileIO | None = None
        self._has_failed = False

    def append(self, data: bytes) -> None:
        """Write ``data`` to the end of the file, or drop it."""
        try:
            if self._file is None:
                self._file = self._path.open("ab", buffering=0)
            self._file.write(data)
        except OSError as error:
            if not self._has_failed:
                self._has_failed = True
                self._tell(f"{self._path} lacks some of the output: {error.strerror}")

    def close(self) -> None:
        """Close the file, if it could be opened."""
        if self._file is not None:
            with suppress(OSError):
                self._file.close()


def _last_lines(file: Path) -> list[str]:
    """Return the last lines of a log; none if there is no log, yet or any more."""
    try:
        with file.open("rb") as log:
            size = log.seek(0, 2)
            log.seek(max(size - _TAIL_BYTES, 0))
            return log.read().decode(errors="replace").splitlines()
    except FileNotFoundError:
        return []


def _readable(line: str, left_out: Set[str] = _KNOWN_FIELDS) -> str:
    fields = _fields(line)
    if not fields:
        return line
    extra = "".join(f" {key}={fields[key]}" for key in fields if key not in left_out)
    exception = f"\n{fields['exception']}" if "exception" in fields else ""
    return f"{fields.get('level', 'info')}: {fields.get('event', '')}{extra}{exception}"


def _fields(line: str) -> Mapping[str, object]:
    try:
        fields = json.loads(line)
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) else {}
