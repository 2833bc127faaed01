"""What a terminal shows while a run goes on."""

import time
from collections import Counter
from io import StringIO

import pytest
from rich.console import Console

from specmesh.cli import silence
from specmesh.load.generators.messages import WorkerProgress
from specmesh.load.runs.live import LiveView, progress_of
from specmesh.load.workload.plan import RunLength

TIMED = RunLength(warm_up_s=5.0, duration_s=30.0, cool_down_s=5.0)


@pytest.mark.parametrize(
    ("extent", "at_s", "said"),
    [
        (TIMED, 2.0, "warm-up, 2 of 40 s"),
        (TIMED, 12.0, "12 of 40 s"),
        (TIMED, 38.0, "cool-down, 38 of 40 s"),
        (TIMED, 43.0, "everything is sent; waiting for the last answers, 3 s"),
        (RunLength(max_conversations=9), 43.0, "43 s"),
    ],
)
def test_how_far_a_run_is(extent, at_s, said):
    assert progress_of(extent, at_s) == said


def test_what_the_workers_tell_is_added_up():
    view = LiveView(Console(), "gRPC a:1", TIMED)
    assert view.__rich__().plain == "gRPC a:1  connecting"
    failed = Counter({"OVERLOADED": 2})
    view.heard(0, WorkerProgress(6.0, 0.1, num_ended=4, num_under_way=3, failures=failed))
    view.heard(1, WorkerProgress(5.9, 0.1, num_ended=1, num_under_way=2, ttfts_s=[0.2]))
    shown = view.__rich__().plain
    for part in ("6 of 40 s", "5 under way", "5 ended", "2 failed", "1.0 ended/s", "200 ms"):
        assert part in shown
    assert shown.endswith("2 OVERLOADED")


def test_without_a_terminal_a_line_now_and_then_says_how_far_the_run_is(monkeypatch):
    monkeypatch.setattr(silence, "SECONDS_BETWEEN_LINES", 0.01)
    shown, said = (Console(file=StringIO(), width=80) for _ in range(2))

    def comes(line):
        deadline = time.monotonic() + 10
        while line not in said.file.getvalue().splitlines():
            assert time.monotonic() < deadline
            time.sleep(0.005)

    with LiveView(shown, "2/s stop=[/dsi]", TIMED, said) as view:
        comes("2/s stop=[/dsi]: connecting")  # no worker has told anything yet
        view.heard(0, WorkerProgress(6.0, 0.1, num_ended=4, num_under_way=3))
        comes("2/s stop=[/dsi]: 6 of 40 s; 3 under way, 4 ended, 0 failed")
    assert shown.file.getvalue() == ""


def test_a_terminal_gets_no_lines_beside_its_view(monkeypatch):
    monkeypatch.setattr(silence, "SECONDS_BETWEEN_LINES", 0.01)
    terminal, said = Console(file=StringIO(), force_terminal=True), Console(file=StringIO())
    with LiveView(terminal, "gRPC a:1", TIMED, said) as view:
        view.heard(0, WorkerProgress(6.0, 0.1))
        time.sleep(0.05)  # silence is what it is about
    assert said.file.getvalue() == ""
