"""Reading what the processes of a mesh log: JSON lines with an ``event``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

_TAIL_BYTES = 64 * 1024
_KNOWN_FIELDS = {"time", "level", "event", "role", "name", "exception"}


def serving_address(line: str) -> str | None:
    """The address in the line that a server writes once it can answer; None for all others."""
    fields = _fields(line)
    if fields.get("event") != "serving":
        return None
    return str(fields["address"])


def tail(file: Path, num_lines: int) -> str:
    """The last lines of a log, in readable form."""
    readable = "\n".join(map(_readable, _last_lines(file))).splitlines()
    return "\n".join(readable[-num_lines:])


def latest_event(file: Path) -> str:
    """What a process has logged last, in a line; empty if nothing yet."""
    if not file.exists():
        return ""
    events = (str(_fields(line).get("event", "")) for line in reversed(_last_lines(file)))
    return next(filter(None, events), "").partition("\n")[0]


def _last_lines(file: Path) -> list[str]:
    with file.open("rb") as log:
        size = log.seek(0, 2)
        log.seek(max(size - _TAIL_BYTES, 0))
        return log.read().decode(errors="replace").splitlines()


def _readable(line: str) -> str:
    fields = _fields(line)
    if not fields:
        return line
    extra = "".join(f" {key}={fields[key]}" for key in fields if key not in _KNOWN_FIELDS)
    exception = f"\n{fields['exception']}" if "exception" in fields else ""
    return f"{fields.get('level', 'info')}: {fields.get('event', '')}{extra}{exception}"


def _fields(line: str) -> Mapping[str, object]:
    try:
        fields = json.loads(line)
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) else {}
