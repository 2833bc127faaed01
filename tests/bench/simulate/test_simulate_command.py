"""``specmesh simulate`` as its users call it."""

import csv
import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from specmesh.orchestrator.strategies import STRATEGIES
from specmesh.tools.simulate.__main__ import app
from specmesh.tools.simulate.papers.branch_figures import SimulatedRounds
from specmesh.tools.simulate.papers.table2 import ROWS, table2_seconds

PNG = b"\x89PNG\r\n\x1a\n"
RUN = ("run", "--target-ms", "20", "--drafter-ms", "5")


def simulate(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


def found(*arguments):
    done = simulate(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_grid_writes_a_picture_and_a_table_with_every_cell(tmp_path):
    folder = tmp_path / "new" / "folder"
    result = found(
        *("grid", "--step", 0.5, "--tokens", 20, "--repeats", 2, "--workers", 1, "--out", folder)
    )
    assert len(result["cells"]) == 2 * 3
    assert result["summary"]["DSI over SI"]["num_cells_slower"] == 0
    table, picture = map(str, (folder / "dsi-offline.csv", folder / "dsi-offline.png"))
    assert result["files"] == [table, picture]
    with open(table, newline="") as file:
        rows = list(csv.DictReader(file))
    assert [{name: float(value) for name, value in row.items()} for row in rows] == result["cells"]
    with open(picture, "rb") as file:
        assert file.read(len(PNG)) == PNG


def test_a_picture_that_cannot_be_written_is_told_before_anything_is_computed(tmp_path):
    (tmp_path / "dsi-offline.png").mkdir()
    done = simulate("grid", "--out", tmp_path)
    assert done.exit_code == 2
    assert "--out" in done.stderr


def test_a_result_is_printed_although_there_is_no_room_for_its_files(tmp_path):
    (tmp_path / "dsi-offline.csv").symlink_to("/dev/full")
    small = ("--step", 0.5, "--tokens", 2, "--repeats", 1, "--workers", 1)
    done = simulate("grid", *small, "--out", tmp_path, "--json")
    assert done.exit_code == 1
    assert json.loads(done.stdout)["num_tokens"] == 2
    assert "No space left on device" in done.stderr


def test_a_rate_that_swallows_the_times_of_answers_is_refused():
    done = simulate(*RUN, "--rate", "1e-300")
    assert done.exit_code == 2
    assert "--rate" in done.stderr


def test_modes_prints_a_row_for_each_mode_and_drafter():
    result = found("modes", "--tokens", 4, "--repeats", 1, "--workers", 1)
    keys = ["mode", "alpha", "overlap", "acceptance"]
    keys += ["non_si_s", "si_s", "dsi_s", "branch_prediction_s"]
    assert all(list(row) == keys for row in result["rows"])
    assert {row["mode"] for row in result["rows"]} == {"greedy", "coupled", "rejection"}
    assert all(row["non_si_s"] == pytest.approx(4) for row in result["rows"])
    assert "Median seconds for 4 tokens" in simulate("modes", "--tokens", 4, "--repeats", 1).output


def test_table2_says_what_a_mesh_of_simulated_models_is_compared_with():
    result = found(
        *("table2", "--tokens", 8, "--repeats", 2, "--seed", 5, "--hop-ms", 1, "--workers", 1),
        *("--prompt-tokens", "1,2,3", "--prompt-tokens", "9"),
    )
    assert result["seeds"] == [5, 6]
    assert result["prompts"] == [[1, 2, 3], [9]]
    row = result["rows"][2]
    assert (row["target"], row["drafter"], row["dataset"]) == ("Phi3-14B", "Phi3-4B", "Alpaca")
    assert (row["target_ms"], row["drafter_ms"], row["acceptance"]) == (49.6, 33.4, 0.87)
    asked = {(each["strategy"], each["lookahead"]): each["seconds"] for each in row["timings"]}
    assert set(asked) == {
        ("autoregressive", None),
        *((name, k) for name in ("speculative", "dsi", "branch-prediction") for k in (1, 5, 10)),
    }
    assert asked["dsi", 5] == [
        table2_seconds(ROWS[2], "dsi", 5, seed, prompt, 8, 0.001)
        for seed in (5, 6)
        for prompt in ((1, 2, 3), (9,))
    ]


def test_branches_writes_its_figures_and_tables(tmp_path):
    result = found("branches", "--tokens", 20, "--workers", 1, "--out", tmp_path)
    assert len(result["figures_5_to_7"]) == 5 * 20
    assert len(result["tables_3_and_4"]) == 12
    assert result["figure_12"]["points"][0]["n"] == result["least_n"] == 8
    assert all(isinstance(holds, bool) for holds in result["shapes"].values())
    names = {"branch-figures.png", "branch-figures.csv", "branch-tables.csv"}
    assert {path.name for path in tmp_path.iterdir()} == names


def test_run_compares_strategies_on_one_mesh(tmp_path):
    histogram = tmp_path / "target.json"
    histogram.write_text('{"0.02": 9, "0.05": 1}')
    chosen = [part for name in STRATEGIES for part in ("--strategy", name)]
    result = found(
        *("run", "--target-histogram", histogram, "--drafter-ms", 4, "--verifiers", 3, *chosen),
        *("--requests", 4, "--rate", 2.5, "--tokens", 12, "--hop-ms", 0.5, "-o", "lookahead=3"),
        *("--heads-ms", 1),
    )
    assert set(result["strategies"]) == set(STRATEGIES)
    for outcome in result["strategies"].values():
        assert outcome["num_tokens"] == 4 * 12
        assert len(outcome["verifier_utilisation"]) == 3
        assert set(outcome["latency_s"]) == {"mean", "p50", "p99"}


@pytest.mark.parametrize(
    "command",
    [
        ("grid", "--step", 0.5, "--tokens", 5, "--repeats", 1, "--workers", 1),
        ("table2", "--tokens", 3, "--repeats", 1, "--workers", 1),
        ("branches", "--tokens", 10, "--workers", 1),
        (*RUN, "--strategy", "autoregressive", "--strategy", "dsi"),
        ("run", "--target-ms", 20, "--strategy", "autoregressive"),
        ("run", "--target-ms", 20, "--heads-ms", 1, "--strategy", "heads"),
    ],
)
def test_people_get_tables(command):
    done = simulate(*command)
    assert done.exit_code == 0, done.output
    assert "─" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("grid", "--step", 0.3), "--step"),
        (("grid", "--step", 0), "--step"),
        (("grid", "--step", "nan"), "--step"),
        (("grid", "--tokens", 0), "--tokens"),
        (("grid", "--workers", 0), "--workers"),
        (("table2", "--prompt-tokens", "1,x"), "--prompt-tokens"),
        (("table2", "--prompt-tokens", "-1"), "--prompt-tokens"),
        (("table2", "--hop-ms", -1), "--hop-ms"),
        (("table2", "--seed", -1), "--seed"),
        ((*RUN, "--strategy", "luck"), "--strategy"),
        ((*RUN, "-o", "lookahead=0"), "--option"),
        ((*RUN, "--acceptance", 1.5), "--acceptance"),
        ((*RUN, "--acceptance", "nan"), "--acceptance"),
        ((*RUN, "--rate", 0), "--rate"),
        ((*RUN, "--verifiers", 0), "--verifiers"),
        (("run", "--drafter-ms", 5), "--target-ms"),
        (("run", "--target-ms", 0, "--drafter-ms", 5), "--target-ms"),
        (("run", "--target-ms", 20), "--drafter-ms"),
        ((*RUN, "--target-token-ms", -1), "--target-token-ms"),
        ((*RUN, "--strategy", "heads"), "--heads-ms"),
        ((*RUN, "--heads-ms", "nan"), "--heads-ms"),
        ((*RUN, "--heads-acceptance", 2), "--heads-acceptance"),
        ((*RUN, "--target-histogram", "some.json"), "--target-histogram"),
    ],
)
def test_a_wrong_option_is_named(arguments, named):
    done = simulate(*arguments)
    assert done.exit_code == 2
    assert named in done.stderr
    assert done.stdout == ""


def test_draft_tokens_may_make_a_verification_longer():
    def seconds(token_ms: float) -> float:
        fixed = ("--strategy", "speculative", "-o", "lookahead=4", "--acceptance", 1.0)
        done = simulate(*RUN, *fixed, "--target-token-ms", token_ms, "--json")
        assert done.exit_code == 0, done.output
        mean: float = json.loads(done.stdout)["strategies"]["speculative"]["latency_s"]["mean"]
        return mean

    assert seconds(2.0) > 1.05 * seconds(0.0)


def test_what_a_token_costs_is_no_part_of_a_histogram(tmp_path):
    histogram = tmp_path / "target.json"
    histogram.write_text('{"0.02": 1}')
    drawn = ("--target-histogram", histogram, "--strategy", "autoregressive")
    done = simulate("run", *drawn, "--target-token-ms", 1)
    assert done.exit_code == 2
    assert "--target-token-ms" in done.stderr


@pytest.mark.parametrize(
    "content",
    [
        *("nonsense", "[1]", "{}", '{"x": 1}', '{"0.1": "1"}', '{"NaN": 1}', '{"0": 5}'),
        pytest.param("[" * 100_000, id="deep"),
    ],
)
def test_a_wrong_histogram_is_refused(content, tmp_path):
    histogram = tmp_path / "target.json"
    histogram.write_text(content)
    done = simulate("run", "--target-histogram", histogram, "--strategy", "autoregressive")
    assert done.exit_code == 2
    assert "--target-histogram" in done.stderr


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").touch()
    done = simulate("grid", "--step", 0.5, "--out", tmp_path / "file")
    assert done.exit_code == 2
    assert "--out" in done.stderr


def test_it_is_a_command_of_specmesh_and_spreads_over_processes():
    script = "from specmesh.cli.main import main; main()"
    arguments = ("simulate", "grid", "--step", "0.5", "--tokens", "5", "--workers", "2", "--json")
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert len(json.loads(done.stdout)["cells"]) == 6


def test_phi_takes_no_longer_for_more_rounds():
    assert found("phi", f"{10**15},{10**15}")["alpha"] == 0.5


def test_phi_is_fitted_to_observed_counts_and_shown_beside_them():
    result = found("phi", "60,20,12,8,55")
    assert result["goodness"] > result["iid_goodness"]
    assert sum(result["probabilities"]) == pytest.approx(1)
    assert result["probabilities"][4] == pytest.approx(55 / 155)
    shown = simulate("phi", "60,20,12,8,55")
    assert "0.355" in shown.output


@pytest.mark.parametrize("counts", ["", "5", "1,x", "1,-2", "0,0"])
def test_counts_that_cannot_be_fitted_are_refused(counts):
    done = simulate("phi", counts)
    assert done.exit_code == 2
    assert "COUNTS" in done.output


def test_the_hit_rate_of_no_rounds_is_0():
    assert SimulatedRounds().hit_rate == 0


def test_nothing_is_compared_where_an_answer_is_too_short_for_drafts():
    arguments = ("branches", "--tokens", 1, "--workers", 1)
    points = found(*arguments)["figure_12"]["points"]
    assert {point["compute_factor"] for point in points} == {None}
    assert "–" in simulate(*arguments).output
