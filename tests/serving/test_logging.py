"""Log lines as a collector of logs reads them."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from specmesh.serving.process.logging import JsonFormatter, QuietLibraries


def record(event: str, *, name: str = "specmesh.x", level: int = logging.INFO, **fields: Any):
    made = logging.getLogger(name).makeRecord(name, level, "a.py", 1, event, (), None)
    vars(made).update(fields)
    return made


def formatted(made: logging.LogRecord) -> dict[str, Any]:
    line = JsonFormatter("verifier", "v-1").format(made)
    assert "\n" not in line
    return json.loads(line)


def test_line_holds_time_level_event_process_and_extra_fields():
    line = formatted(record("serving", address="127.0.0.1:1", created=1700000000.25))
    assert line == {
        "time": "2023-11-14T22:13:20.250Z",
        "level": "info",
        "event": "serving",
        "role": "verifier",
        "name": "v-1",
        "address": "127.0.0.1:1",
    }


def test_exception_is_a_field():
    try:
        raise ValueError("two\nlines")
    except ValueError:
        line = formatted(record("call failed", exc_info=sys.exc_info()))
    assert line["exception"].startswith("Traceback")
    assert line["exception"].endswith("ValueError: two\nlines")


def test_value_that_json_lacks_becomes_text():
    assert formatted(record("found", folder=Path("a/b")))["folder"] == "a/b"


def test_library_says_one_thing_once_a_minute(monkeypatch: pytest.MonkeyPatch):
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    quiet = QuietLibraries()
    warning = {"name": "opentelemetry.exporter", "level": logging.WARNING}
    assert quiet.filter(record("collector away", **warning))
    assert not quiet.filter(record("collector away, again", **warning))
    assert quiet.filter(record("something else", lineno=2, **warning))
    now += 60.0
    assert quiet.filter(record("collector away", **warning))


def test_library_is_heard_from_warning_up_and_our_own_always():
    quiet = QuietLibraries()
    assert not quiet.filter(record("connected", name="grpc._cython", level=logging.INFO))
    assert all(quiet.filter(record("round")) for _ in range(2))


def test_what_a_library_notes_for_itself_is_left_out():
    assert "_ray_timestamp_ns" not in formatted(record("connected", _ray_timestamp_ns=1))


TALKATIVE = """
import logging, warnings
library = logging.getLogger("talkative.part")
library.addHandler(logging.StreamHandler())
library.propagate = False
from specmesh.serving.process.logging import configure, take_over
configure("info", "verifier", "v-1")
take_over("talkative")
library.warning("from the library")
warnings.warn("from Python")
"""


def test_warnings_and_libraries_with_handlers_of_their_own_are_lines_of_json():
    done = subprocess.run(
        [sys.executable, "-c", TALKATIVE], capture_output=True, text=True, timeout=60, check=True
    )
    own, warning = map(json.loads, done.stderr.splitlines())
    assert own["event"] == "from the library"
    assert "UserWarning: from Python" in warning["event"]
    assert {each["level"] for each in (own, warning)} == {"warning"}
