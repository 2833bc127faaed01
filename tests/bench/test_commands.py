"""Benchmarks with meshes of real processes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.inference.random_heads import save_random_heads

SCRIPT = "from specmesh.cli.main import main; main()"


def specmesh(*arguments, timeout=60):
    return subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def test_hops_are_timed_against_a_bare_echo(no_process_left):
    """As everybody starts it."""
    done = specmesh("bench", "hops", "--calls", "100", "--json")
    times = json.loads(done.stdout)
    assert times["num_calls"] == 100
    assert 0 < times["p50_ms"] <= times["p99_ms"]
    assert 0 < times["echo_p50_ms"] <= times["echo_p99_ms"]
    assert times["ratio"] == pytest.approx(times["p50_ms"] / times["echo_p50_ms"])
    assert 0 < times["tls_p50_ms"] <= times["tls_p99_ms"]
    assert 0 < times["tls_open_p50_ms"] <= times["tls_open_p99_ms"]
    assert times["tls_ratio"] == pytest.approx(times["tls_p50_ms"] / times["p50_ms"])


def test_strategies_run_side_by_side_and_say_what_they_took(bench, target_model, no_process_left):
    done = bench(
        "strategies",
        *("--json", "--target", target_model, "--drafter", "prompt-lookup"),
        *("--num-prompts", "1", "--tokens", "16", "--temperature", "0.8", "--seed", "7"),
        *("--strategy", "dsi", "--strategy", "speculative", "-o", "dsi.lookahead=2"),
    )
    assert done.exit_code == 0, done.stderr
    summary = json.loads(done.stdout)
    assert list(summary["strategies"]) == ["autoregressive", "dsi", "speculative"]
    assert summary["strategies"] == summary["temperatures"][0]["strategies"]
    assert summary["speculation"]["dsi"]["options"]["lookahead"] == 2
    assert summary["speculation"]["speculative"]["options"]["lookahead"] is None
    assert summary["identical"] is True
    assert 0 <= summary["temperatures"][0]["repeated_share"] <= 1
    for figures in summary["strategies"].values():
        assert figures["tokens_per_s"] > 0
        assert figures["output_tokens"] == 16
        wasted = figures["drafted_tokens"] - figures["accepted_tokens"]
        assert figures["wasted_tokens"] == wasted >= 0
    assert len(summary["accepted_counts"]) == 5
    assert set(summary["cancellation"] or {}) <= {
        *("p50_ms", "p99_ms", "orchestrator_p50_ms", "orchestrator_p99_ms", "count")
    }


def test_lookaheads_run_side_by_side(bench, target_model, no_process_left):
    done = bench(
        "lookahead",
        *("--json", "--target", target_model, "--drafter", "prompt-lookup"),
        *("--num-prompts", "1", "--tokens", "16", "--temperature", "0", "--seed", "7"),
        *("--lookahead", "3", "--lookahead", "1"),
    )
    assert done.exit_code == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["identical"] is True
    (contest,) = summary["temperatures"]
    assert [figures["lookahead"] for figures in contest["fixed"]] == [3, 1]
    assert contest["best_fixed"] in {3, 1}
    best = max(figures["tokens_per_s"] for figures in contest["fixed"])
    assert contest["ratio"] == pytest.approx(contest["adaptive"]["tokens_per_s"] / best)
    assert "Adaptive lookahead is" in done.stderr


def test_trees_run_beside_chains(bench, target_model, tmp_path, no_process_left):
    heads = save_random_heads(Path(target_model), tmp_path / "heads")
    done = bench(
        "tree",
        *("--json", "--target", target_model, "--drafter", "prompt-lookup"),
        *("--num-prompts", "1", "--tokens", "16", "--temperature", "0", "--width", "3"),
        *("--heads", str(heads)),
    )
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["identical"] is True
    ways = [(row["strategy"], row["width"]) for row in found["rows"]]
    kinds = ("tree", "heads", "heads-and-drafter")
    trees = [(name, width) for name in kinds for width in (None, 3)]
    assert ways == [("autoregressive", None), ("speculative", None), *trees]
    both = "heads, prompt-lookup"
    drafters = [None, *["prompt-lookup"] * 3, "heads", "heads", both, both]
    assert [row["drafter"] for row in found["rows"]] == drafters
    assert all(row["tokens_per_s"] > 0 and row["ratio"] > 0 for row in found["rows"])


def test_the_filter_is_swept_and_many_sessions_are_timed(bench, no_process_left):
    done = bench(
        "filter",
        *("--json", "--num-prompts", "1", "--tokens", "8"),
        *("--sessions", "3", "--rounds", "1"),
    )
    assert done.exit_code == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["end_points_exact"] is True
    assert len(report["points"]) == 18
    sessions = report["sessions"]
    assert sessions["count"] == 3
    assert set(sessions["target_cpu_ms"]) >= {"verifier-0", "drafter", "orchestrator", "client"}
    for point in sessions["points"]:
        assert point["factor"] == pytest.approx(
            point["tokens_per_s"] / sessions["target_tokens_per_s"]
        )
        assert 0 <= point["mean_batch_size"] <= 3


def test_of_a_pair_that_is_not_known_a_calibration_is_asked_for(bench, target_model):
    done = bench("filter", "--target", target_model)
    assert done.exit_code == 1
    assert "--calibration" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--strategy", "luck"), "'luck' is not one of"),
        (("-o", "dsi.lookahead"), "lookahead has no value"),
        (("-o", "luck.lookahead=4"), "'luck' is not one of"),
    ],
)
def test_a_comparison_of_what_is_not_there_is_refused(bench, options, said):
    done = bench("strategies", *options)
    assert done.exit_code == 2
    assert said in done.stderr


def test_what_traces_predict_is_compared_with_what_is(bench, no_process_left):
    done = bench("what-if", "--answers", "1", "--tokens", "12", "--json")
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    changes = [case["change"] for case in found["cases"]]
    assert changes == ["2 more verifiers", "γ = 3", "a drafter 2 times as fast"]
    for case in found["cases"]:
        assert case["error"] == pytest.approx(abs(case["predicted_s"] / case["after_s"] - 1))
