"""DSI's Table 2 through real processes."""

from __future__ import annotations

import json

import pytest

from specmesh.bench.mesh.measure import MeshRuns
from specmesh.bench.mesh.simulated import ExpectedRow, simulate_row
from specmesh.bench.mesh.summary import summarise
from specmesh.tools.simulate.papers.table2 import ROWS, PublishedRow

SIMULATED = {
    ("autoregressive", None): [4.0, 4.0],
    ("speculative", 1): [3.0, 3.0],
    ("speculative", 5): [2.0, 3.0],
    ("dsi", 1): [1.0, 2.0],
    ("dsi", 5): [2.0, 2.0],
    ("branch-prediction", 5): [2.0, 2.0],
}


def row(simulated_s, dsi_lookaheads=(1, 5)):
    published = PublishedRow("T", "D", "data", 20.0, 5.0, 0.9, 1.5)
    return ExpectedRow(published, simulated_s, frozenset(dsi_lookaheads))


def test_each_strategy_stands_at_its_own_best_lookahead():
    wall_s = {setting: [1.1 * s for s in each] for setting, each in SIMULATED.items()}
    wall_s["dsi", 1] = [9.0, 9.0]  # a bad moment: then the next best counts, on both clocks
    summary = summarise(row(SIMULATED), MeshRuns(10, wall_s))
    assert (summary.lookahead, summary.si_lookahead) == (5, 5)
    assert summary.dsi_s == pytest.approx(2.2)
    assert summary.simulated_dsi_s == 2.0
    assert summary.mesh_tax == pytest.approx(1.1)
    assert summary.dsi_over_si == pytest.approx(2.75 / 2.2)


def test_dsi_keeps_to_lookaheads_with_which_its_replicas_suffice():
    summary = summarise(row(SIMULATED, dsi_lookaheads=[5]), MeshRuns(10, SIMULATED))
    assert (summary.lookahead, summary.dsi_s) == (5, 2.0)


def test_rows_come_with_what_the_virtual_clock_says():
    rows = [simulate_row(row, seed=3, prompts=[(1, 2), (3,)], num_tokens=10) for row in ROWS]
    assert len(rows) == 10
    assert (rows[0].dsi_lookaheads, rows[6].dsi_lookaheads) == ({1, 5, 10}, {5, 10})
    assert rows[0].simulated_s["autoregressive", None] == pytest.approx([0.206, 0.206])
    for each in rows:
        assert min(each.simulated_s["dsi", 1]) > 0
        assert all(len(seconds) == 2 for seconds in each.simulated_s.values())


def test_a_row_runs_through_real_processes_and_every_strategy_says_the_same(bench, no_process_left):
    arguments = ["--row", "1", "--prompts", "1", "--tokens", "6", "--repeats", "1"]
    done = bench("mesh", *arguments, "--json")
    assert done.exit_code == 0, done.output
    (found,) = json.loads(done.stdout)["rows"]
    assert found["identical"] is True
    assert found["num_processes"] == 10
    assert found["non_si_s"] > 6 * 0.0206
    assert found["mesh_tax"] > 1
