"""Many answers at once: what the benchmark simulates, runs and sums up."""

from __future__ import annotations

import json
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from specmesh.bench.crowd.grid import CrowdCell, CrowdGrid
from specmesh.bench.crowd.picture import PUBLISHED, drawn, speed_ups
from specmesh.bench.crowd.speeds import CHOICES, CellSpeeds, Task, tokens_per_s
from specmesh.bench.crowd.summary import Regret, compared, ratios, regret
from specmesh.bench.crowd.targets import TARGETS
from specmesh.orchestrator.strategies import LOSSLESS
from specmesh.simulation.law import ForwardShape

CELL = CrowdCell("40+0", 0.8, 0.1, answers=2, replicas=1)
OTHER = CrowdCell("10+5", 0.8, 0.1, answers=2, replicas=1)
FOUND = [
    CellSpeeds(CELL, alone=10.0, auto=18.0, strategies={"dsi": 20.0, "tree": 15.0}),
    CellSpeeds(OTHER, alone=10.0, auto=10.0, strategies={"dsi": 5.0, "tree": 9.95}),
]


@pytest.mark.parametrize(
    ("name", "tokens", "ms"),
    [
        ("8b-h100", 1, 4.776),
        ("8b-h100", 256, 4.776),
        ("8b-h100", 512, 8.283),
        ("70b-h100", 1, 20.896),
        ("70b-h100", 1024, 72.44),
        ("30+2", 1, 32),
        ("30+2", 11, 52),
        ("40+0", 99, 40),
    ],
)
def test_forwards_take_what_the_arithmetic_says(name, tokens, ms):
    assert TARGETS[name].law.ms(ForwardShape(tokens=tokens)) == pytest.approx(ms, rel=1e-3)


def test_a_drafter_is_a_smaller_target():
    law = TARGETS["70b-h100"].scaled(0.1)
    for tokens in (1, 300, 1000):
        size = ForwardShape(tokens=tokens)
        assert law.ms(size) == pytest.approx(0.1 * TARGETS["70b-h100"].law.ms(size))


def test_a_grid_has_every_combination_once():
    grid = CrowdGrid(("40+0",), (0.4, 0.8), (0.1,), (1, 4, 4), (1,))
    cells = grid.cells(most=100)
    assert len(cells) == len(set(cells)) == 4
    assert [cell.answers for cell in cells] == [4, 4, 1, 1]


def test_the_same_cells_are_drawn_each_time_and_have_every_value():
    grid = CrowdGrid()
    cells = grid.cells(most=48)
    assert len(set(cells)) == 48
    assert cells == grid.cells(most=48)
    assert {cell.forward for cell in cells} == set(grid.forwards)
    assert {cell.answers for cell in cells} == set(grid.answers)


def test_equal_simulations_have_equal_results_and_lone_drafts_pay_if_tokens_cost_nothing():
    cell = CrowdCell("40+0", 0.95, 0.02, answers=1, replicas=1)
    alone, speculative = (
        tokens_per_s(Task(cell, name)) for name in ("autoregressive", "speculative")
    )
    assert alone == pytest.approx(1000 / 40, rel=0.02)  # hardly any token waits for a call
    assert speculative > 2 * alone
    assert speculative == tokens_per_s(Task(cell, "speculative"))


def test_every_lossless_strategy_is_compared():
    assert {*CHOICES, "autoregressive", "auto"} >= set(LOSSLESS)


def test_ratios_are_those_to_the_target_alone_the_worst_first():
    found = compared(FOUND)
    assert [(each.strategy, each.cell, each.ratio) for each in found] == [
        ("dsi", OTHER, 0.5),
        ("tree", OTHER, pytest.approx(0.995)),
        ("auto", OTHER, 1.0),
        ("tree", CELL, 1.5),
        ("auto", CELL, 1.8),
        ("dsi", CELL, 2.0),
    ]
    dsi, tree, auto = ratios(found)
    assert (dsi.strategy, dsi.worst, dsi.mean, dsi.slower) == ("dsi", 0.5, 1.25, 0.5)
    assert (tree.strategy, tree.slower) == ("tree", 0.0)  # too little to count
    assert (auto.strategy, auto.worst) == ("auto", 1.0)


def test_regret_is_what_the_choice_lacks_of_the_best_strategy():
    found = regret(FOUND)
    assert found.mean == pytest.approx(0.05)
    assert found.worst == pytest.approx(0.1)
    assert regret([CellSpeeds(CELL, 10.0, None, {"dsi": 20.0})]) == Regret(None, None)


def test_the_picture_has_a_curve_for_each_target_beside_the_published_ones():
    more = [replace(FOUND[0], cell=replace(CELL, answers=8), auto=12.0), *FOUND]
    assert speed_ups(more) == {
        "auto, 40+0": {2: pytest.approx(1.8), 8: pytest.approx(1.2)},
        "auto, 10+5": {2: 1.0},
    }
    svg = ElementTree.fromstring(drawn(more))
    said = [each.text for each in svg.iter("{http://www.w3.org/2000/svg}text")]
    assert {"auto, 40+0", "auto, 10+5", *PUBLISHED} <= set(said)
    assert {"1×", "1", "256"} <= set(said)


TINY = [
    *("--part", "cells", "--processes", "1", "--forward", "40+0", "--acceptance", "0.8"),
    *("--cost", "0.1", "--answers", "2", "--replicas", "1", "--strategy", "speculative"),
]


def test_cells_are_printed_as_one_object_and_drawn(bench, tmp_path):
    done = bench("crowd", *TINY, "--json", "--picture", str(tmp_path / "crowd.svg"))
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["real"] == []
    (cell,) = found["cells"]
    assert cell.pop("alone") > 0
    assert cell.pop("strategies").keys() == {"speculative"}
    assert cell.keys() >= {"auto"}
    cell.pop("auto")
    assert "auto, 40+0" in (tmp_path / "crowd.svg").read_text()
    assert cell == {
        **{"forward": "40+0", "acceptance": 0.8, "cost": 0.1, "answers": 2, "replicas": 1}
    }
    assert found["regret"].keys() == {"mean", "worst"}


def test_the_worst_cells_are_printed(bench):
    done = bench("crowd", *TINY)
    assert done.exit_code == 0, done.output
    assert "The worst cells" in done.stdout
    assert "speculative" in done.stdout


@pytest.mark.parametrize(("flag", "value"), [("--forward", "9+9"), ("--strategy", "filter")])
def test_what_is_not_known_is_refused(bench, flag, value):
    done = bench("crowd", flag, value)
    assert done.exit_code == 2
    assert value in done.stderr


def test_a_picture_that_cannot_be_written_is_refused_before_anything_is_simulated(bench, tmp_path):
    done = bench("crowd", *TINY, "--picture", str(tmp_path / "missing" / "crowd.svg"))
    assert done.exit_code == 2
    assert "--picture" in done.stderr


def test_crowds_of_real_processes_are_compared_with_one_answer(bench, no_process_left):
    arguments = ["--part", "real", "--crowd", "2", "--crowd", "1", "--tokens", "4", "--json"]
    done = bench("crowd", *arguments)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["identical"] is True
    assert found["cells"] == []
    assert [(each["strategy"], each["answers"]) for each in found["real"]] == [
        ("autoregressive", 1),
        ("autoregressive", 2),
        ("speculative", 1),
        ("speculative", 2),
    ]
    assert [each["ratio"] for each in found["real"]][::2] == [1.0, 1.0]
    assert found["real"][0]["ms_per_token"] >= 40
