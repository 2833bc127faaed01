"""Long work says how far it is, on a terminal and elsewhere."""

from __future__ import annotations

import io
import threading
import time

from rich.console import Console

from specmesh.cli import silence
from specmesh.tools.kit import progress
from specmesh.tools.kit.progress import duration, steps_line


def test_a_line_tells_what_is_done_and_what_is_left():
    assert steps_line("rows", 0, 4, 20) == "rows: 0 of 4 after 20 s"
    assert steps_line("rows", 1, 40, 40) == "rows: 1 of 40 after 40 s"
    assert steps_line("rows", 1, 4, 40) == "rows: 1 of 4 after 40 s, about 2 min 0 s left"
    assert steps_line("rows", 4, 4, 40) == "rows: 4 of 4 after 40 s"


def test_durations_are_said_in_minutes():
    assert [duration(each) for each in (0.4, 59.6, 125)] == ["0 s", "1 min 0 s", "2 min 5 s"]


def test_without_a_terminal_there_is_a_line_now_and_then(monkeypatch):
    monkeypatch.setattr(silence, "SECONDS_BETWEEN_LINES", 0.01)
    written = io.StringIO()
    with progress.progress("rows", 3, Console(file=written)) as advance:
        advance()
        deadline = time.monotonic() + 10
        while "rows: 1 of 3" not in written.getvalue():
            assert time.monotonic() < deadline
            time.sleep(0.005)


def test_on_a_terminal_there_is_a_bar_that_goes():
    written = io.StringIO()
    console = Console(file=written, force_terminal=True, width=80)
    with progress.progress("rows", 2, console) as advance:
        advance()
        assert "1/2" in written.getvalue()


def test_blocks_that_follow_each_other_are_no_longer_silent_than_one(monkeypatch):
    monkeypatch.setattr(silence, "SECONDS_BETWEEN_LINES", 60.0)
    monkeypatch.setattr(silence, "_last_line_s", time.monotonic() - 59.5)
    said = threading.Event()

    def line(_):
        said.set()
        return "under way"

    with silence.lines(line, Console(file=io.StringIO())):
        assert said.wait(30)
