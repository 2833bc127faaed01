"""What would have shortened an answer, when there is little time to find out."""

import pytest
from rich.console import Console
from tests.simulation.replay.test_recorded import spans

from specmesh.cli.trace.shorter import shorter, shorter_json, shorter_lines
from specmesh.simulation.replay import what_if
from specmesh.traces.trace import Trace


@pytest.fixture
def answer():
    return Trace.of(spans())


def printed(found):
    console = Console(width=400)
    with console.capture() as capture:
        for line in shorter_lines(found):
            console.print(line)
    return capture.get()


def test_with_enough_time_everything_is_simulated(answer):
    done = shorter(answer)
    assert (done.interrupted, done.found.left_out) == (False, ())
    assert "time" not in printed(done.found).replace("2 times as fast", "")


def test_what_there_was_no_time_for_is_named(answer):
    found = shorter(answer, limit_s=0).found
    assert (found.num_runs, found.predictions) == (1, ())
    names = [each.name for each in found.left_out]
    assert {"1 more verifier", "γ = 3"} <= {*names}
    assert f"no time was left to simulate: {', '.join(names)}" in printed(found)
    assert shorter_json(found)["left_out"] == names


@pytest.fixture
def interrupted_after(monkeypatch):
    """Ctrl-C comes during a simulation, after so many."""
    simulated_s, left = what_if._simulated_s, []

    def simulate(request, seed):
        if not left:
            raise KeyboardInterrupt
        left.pop()
        return simulated_s(request, seed)

    monkeypatch.setattr(what_if, "_simulated_s", simulate)
    return left.extend


def test_ctrl_c_leaves_what_is_known_by_then(answer, interrupted_after):
    interrupted_after([1, 1])
    done = shorter(answer)
    assert done.interrupted
    assert [each.change.name for each in done.found.predictions] == ["a target 2 times as fast"]


def test_ctrl_c_before_anything_is_known_says_so(answer, interrupted_after):
    interrupted_after([])
    done = shorter(answer)
    assert done.interrupted
    assert printed(done.found).strip() == "what would have shortened it: not known: interrupted"


def test_fewer_simulations_than_planned_are_told(answer, interrupted_after):
    interrupted_after([1] * 40)
    found = shorter(answer).found
    assert found.left_out == ()
    assert f"each was simulated {found.num_runs} times instead of 8" in printed(found)
