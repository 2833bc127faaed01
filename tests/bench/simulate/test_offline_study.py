"""The offline study on a coarse grid: the theorems, and that no lookahead is missed."""

import pytest

from specmesh.tools.simulate.papers.offline import (
    Settings,
    grid,
    run_cell,
    run_grid,
    run_once,
)
from specmesh.tools.simulate.papers.speedups import SPEEDUPS, cell_dict, summary

SETTINGS = Settings(num_tokens=50, repeats=3)


@pytest.fixture(scope="module")
def cells():
    return list(run_grid(0.25, SETTINGS, workers=1)) + [
        run_cell((latency, acceptance), SETTINGS)
        for latency in (0.05, 0.1)
        for acceptance in (0.0, 0.5, 0.8, 0.95, 1.0)
    ]


def test_the_grid_spans_both_axes_and_leaves_out_a_drafter_that_takes_no_time():
    places = list(grid(0.05))
    assert len(places) == 20 * 21
    assert (places[0], places[-1]) == ((0.05, 0.0), (1.0, 1.0))


def test_dsi_is_never_slower_than_si_or_non_si(cells):
    for cell in cells:
        assert cell.dsi.time <= cell.si.time * (1 + 1e-9), cell
        assert cell.dsi.time <= cell.non_si * (1 + 1e-9), cell
        assert cell.dsi_eq1.time <= cell.non_si * (1 + 1e-9), cell
        assert cell.dsi_eq1.time <= cell.si_eq1.time * (1 + 1e-9), cell


def test_si_is_slower_than_non_si_where_the_drafter_is_slow_or_wrong(cells):
    for cell in cells:
        if cell.drafter_latency > cell.acceptance + 0.1:
            assert cell.si.time > cell.non_si, cell
        if cell.drafter_latency < cell.acceptance - 0.1:
            assert cell.si.time < cell.non_si, cell


def test_non_si_takes_one_target_forward_per_token(cells):
    assert {cell.non_si for cell in cells} == {50.0}


@pytest.mark.parametrize(
    "place", [(0.04, 0.55), (0.05, 0.97), (0.11, 0.8), (0.3, 0.62), (0.77, 0.3), (0.9, 0.98)]
)
def test_the_best_of_the_lookaheads_tried_is_the_best_of_all(place):
    settings = Settings(num_tokens=24, repeats=2)
    cell = run_cell(place, settings)
    for strategy, best in (("speculative", cell.si), ("dsi", cell.dsi)):
        every = {
            lookahead: sum(run_once(strategy, lookahead, *place, seed, 24) for seed in range(2)) / 2
            for lookahead in (*range(1, 30), 100, 200)
        }
        assert best.time == pytest.approx(min(every.values()), rel=1e-9)
        assert every[best.lookahead] == pytest.approx(best.time, rel=1e-9)


def test_equation_1_makes_a_fast_drafter_lose_to_si_at_a_lookahead_it_forbids():
    cell = run_cell((0.01, 0.38), Settings())
    assert cell.si.lookahead < 15 <= cell.dsi_eq1.lookahead
    assert cell.dsi.time < cell.si.time < cell.dsi_eq1.time


def test_the_summary_tells_how_often_and_where_something_is_slower(cells):
    found = summary(cells)
    assert found["DSI over SI"]["num_cells_slower"] == 0
    assert found["SI over non-SI"]["num_cells_slower"] > 0
    assert found["SI over non-SI"]["min_at"] == [1.0, 0.0]
    assert found["SI over non-SI"]["min"] == pytest.approx(50 / 99)


def test_a_row_has_a_column_for_each_heat_map(cells):
    row = cell_dict(cells[0])
    assert len([name for name in row if "_over_" in name]) == len(SPEEDUPS)
    assert row["si_over_non_si"] == cells[0].non_si / cells[0].si.time


def test_several_processes_find_the_same():
    settings = Settings(num_tokens=10, repeats=1)
    assert list(run_grid(0.5, settings, 2)) == list(run_grid(0.5, settings, 1))


@pytest.mark.parametrize("lookahead", [1, 2, 5])
@pytest.mark.parametrize("latency", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("acceptance", [0.3, 0.8])
def test_dsi_is_on_average_no_slower_than_si_at_the_same_lookahead(lookahead, latency, acceptance):
    # Theorem 2 says so in expectation: where drafting takes T or longer, single texts differ.
    def mean(strategy):
        return sum(
            run_once(strategy, lookahead, latency, acceptance, seed, 20) for seed in range(15)
        )

    assert mean("dsi") <= mean("speculative") * (1 + 1e-9)
