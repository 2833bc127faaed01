"""The console script as a real process."""

import json
import subprocess
import sys

import pytest

SCRIPT = "from specmesh.cli.main import main; main()"
WITHOUT_TYPER = "import sys; sys.modules['typer'] = None; " + SCRIPT


def specmesh(*arguments, script=SCRIPT, timeout=60):
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def test_help_names_every_command():
    done = specmesh("--help")
    assert done.returncode == 0
    for command in ("up", "generate", "models", "demo", "bench", "train", "drafter", "verifier"):
        assert f" {command} " in done.stdout


def test_without_its_packages_it_says_how_to_get_them():
    done = specmesh("--help", script=WITHOUT_TYPER)
    assert done.returncode == 1
    assert done.stderr == "specmesh: typer is not installed: pip install 'specmesh[cli]'\n"


@pytest.mark.parametrize("role", ["verifier", "confidence", "orchestrator"])
def test_a_service_is_passed_all_its_arguments_and_its_exit_status_back(role):
    helped = specmesh(role, "--help")
    assert helped.returncode == 0
    assert f"specmesh {role}" in helped.stdout
    assert "--drain-seconds" in helped.stdout
    refused = specmesh(role, "--port", "nonsense")
    assert refused.returncode == 2
    assert "--port" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_hops_are_timed_against_a_bare_echo(no_process_left):
    done = specmesh("bench", "hops", "--calls", "100", "--json")
    times = json.loads(done.stdout)
    assert times["num_calls"] == 100
    assert 0 < times["p50_ms"] <= times["p99_ms"]
    assert 0 < times["echo_p50_ms"] <= times["echo_p99_ms"]
    assert times["ratio"] == pytest.approx(times["p50_ms"] / times["echo_p50_ms"])


def test_strategies_run_side_by_side_and_say_what_they_took(target_model, no_process_left):
    done = specmesh(
        *("bench", "strategies", "--json", "--target", target_model, "--drafter", "prompt-lookup"),
        *("--num-prompts", "1", "--tokens", "16", "--temperature", "0.8", "--seed", "7"),
        *("--strategy", "dsi", "--strategy", "speculative", "--lookahead", "dsi=2"),
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert list(summary["strategies"]) == ["autoregressive", "dsi", "speculative"]
    assert summary["strategies"] == summary["temperatures"][0]["strategies"]
    assert summary["speculation"]["dsi"]["lookahead"] == 2
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


def test_lookaheads_run_side_by_side(target_model, no_process_left):
    done = specmesh(
        *("bench", "lookahead", "--json", "--target", target_model, "--drafter", "prompt-lookup"),
        *("--num-prompts", "1", "--tokens", "16", "--temperature", "0", "--seed", "7"),
        *("--lookahead", "3", "--lookahead", "1"),
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["identical"] is True
    (contest,) = summary["temperatures"]
    assert [figures["lookahead"] for figures in contest["fixed"]] == [3, 1]
    assert contest["best_fixed"] in {3, 1}
    best = max(figures["tokens_per_s"] for figures in contest["fixed"])
    assert contest["ratio"] == pytest.approx(contest["adaptive"]["tokens_per_s"] / best)
    assert "Adaptive lookahead is" in done.stderr


def test_the_filter_is_swept_and_many_sessions_are_timed(no_process_left):
    done = specmesh(
        *("bench", "filter", "--json", "--num-prompts", "1", "--tokens", "8"),
        *("--sessions", "3", "--rounds", "1"),
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
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


def test_of_a_pair_that_is_not_known_a_calibration_is_asked_for(target_model):
    done = specmesh("bench", "filter", "--target", target_model)
    assert done.returncode == 1
    assert "--calibration" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--strategy", "luck"), "'luck' is none of"),
        (("--lookahead", "dsi"), "'dsi' is not STRATEGY=N"),
        (("--lookahead", "luck=4"), "'luck' is none of"),
    ],
)
def test_a_comparison_of_what_is_not_there_is_refused(options, said):
    done = specmesh("bench", "strategies", *options)
    assert done.returncode == 2
    assert said in done.stderr


@pytest.mark.parametrize("command", [("up",), ("demo",), ("bench", "strategies")])
def test_a_password_in_the_arguments_is_refused_unsaid(command):
    done = specmesh(*command, "--redis-url", "redis://:s3cret@127.0.0.1:1")
    assert done.returncode == 2
    assert "REDIS_URL" in done.stderr
    assert "s3cret" not in done.stdout + done.stderr


def test_a_mesh_that_cannot_start_says_why_in_the_failed_process_words(tmp_path, no_process_left):
    done = specmesh("up", "--port", "0", "--target", str(tmp_path), "--drafter", "random")
    assert done.returncode == 1
    assert "ended with status 1" in done.stderr
    assert str(tmp_path) in done.stderr
