"""Comparisons find the differences that there are, and none where there is none."""

import json
from random import Random

import pytest
from tests.load.conftest import observed, seen, workload
from tests.load.reports import run_report
from typer.testing import CliRunner

from specmesh.load.__main__ import app
from specmesh.load.results.compare import differences
from specmesh.load.runs.summary import summarise
from specmesh.load.transports.observation import RequestOutcome


def report(latencies_s, others=(), e2e_s=0.5):
    """Of a run with these times to the first token; the end comes ``e2e_s`` later."""
    observations = list(others) + [
        observed(n / 10, ttft_s=ttft_s, e2e_s=ttft_s + e2e_s)
        for n, ttft_s in enumerate(latencies_s)
    ]
    return run_report(summarise(workload(), seen(observations), None))


def drawn(seed, factor=1.0, number=2000):
    rng = Random(seed)
    return [factor * rng.lognormvariate(-2, 0.3) for _ in range(number)]


def ttft_mean(before, after):
    found = differences(report(before), report(after))
    return next(each for each in found if (each.metric, each.statistic) == ("ttft_ms", "mean"))


def test_a_slower_run_is_slower_by_about_that_much():
    found = ttft_mean(drawn(1), drawn(2, 1.05))
    assert 0.0 < found.low < 0.05 < found.high < 0.10
    assert found.in_words.startswith("slower by ")


def test_a_faster_run_is_faster():
    found = ttft_mean(drawn(1), drawn(2, 0.8))
    assert found.low < -0.2 < found.high < -0.15
    assert found.in_words.startswith("faster by ")


def test_between_equal_runs_a_difference_is_shown_as_rarely_as_promised():
    shown = [
        ttft_mean(drawn(seed, number=300), drawn(seed + 100, number=300)) for seed in range(12)
    ]
    false_alarms = sum("no difference shown" not in each.in_words for each in shown)
    assert false_alarms <= 3  # more come once in 500 times


def test_latencies_that_hang_together_are_less_certain_than_independent_ones():
    levels = [0.1 + 0.01 * (n // 50 % 2) for n in range(2000)]
    mixed = levels[:]
    Random(3).shuffle(mixed)
    widths = [
        found.high - found.low
        for found in (ttft_mean(drawn(1), levels), ttft_mean(drawn(1), mixed))
    ]
    assert widths[0] > widths[1]


def test_a_range_is_said_in_whole_percents_if_they_differ():
    words = ttft_mean(drawn(1), drawn(1, 1.5)).in_words
    assert words.startswith("slower by 4") or words.startswith("slower by 5")
    assert words.endswith(" %")


@pytest.mark.parametrize("number", [50, 64, 99, 200, 2001])
def test_before_and_after_are_the_numbers_of_the_reports(number):
    before, after = report(drawn(1, number=number)), report(drawn(2, 1.05, number=number))
    for each in differences(before, after):
        old, new = (run["result"]["latency"][each.metric] for run in (before, after))
        assert (each.before, each.after) == (old[each.statistic], new[each.statistic])


def test_what_a_run_had_lies_within_its_bounds_though_not_all_of_it_is_listed():
    """Users who left count for the time to the first token, and are no answers."""
    left = [observed(n / 10, ttft_s=2.0, outcome=RequestOutcome.CANCELLED) for n in range(200)]
    before, after = report(drawn(1)), report(drawn(2), others=left)
    found = next(each for each in differences(before, after) if each.statistic == "p95")
    assert found.after == pytest.approx(2000.0, rel=1e-3)
    assert found.low < found.after / found.before - 1 < found.high


def test_a_time_of_nothing_has_no_change_in_percent():
    """All tokens of each answer come at once: no time for each is left."""
    runs = report(drawn(1, number=60), e2e_s=0.0), report(drawn(2, number=60))
    found = [each for each in differences(*runs) if each.metric == "tpot_ms"]
    assert [each.statistic for each in found] == ["mean", "p50", "p95", "p99"]
    for each in found:
        assert (each.before, each.low, each.high) == (0.0, None, None)
        assert each.after > 0.0
        assert each.in_words == "no change in percent: before is 0, or may be"


def test_too_few_answers_are_not_compared():
    with pytest.raises(ValueError, match="has 20 answers; a comparison requires at least 50"):
        differences(report(drawn(1)), report(drawn(1, number=20)))


@pytest.mark.parametrize("wrong", ["before", "after"])
def test_the_file_that_cannot_be_compared_is_named_alone(tmp_path, wrong):
    for name in ("before", "after"):
        found = report(drawn(1, number=20 if name == wrong else 60))
        (tmp_path / f"{name}.json").write_text(json.dumps(found))
    names = [str(tmp_path / f"{name}.json") for name in ("before", "after")]
    done = CliRunner(env={"COLUMNS": "300"}).invoke(app, ["compare", *names])
    assert done.exit_code == 2
    assert f"Invalid value: {tmp_path / wrong}.json has 20 answers; a comp" in done.output


@pytest.fixture
def files(tmp_path):
    """Two reports; in the second, the slow requests have failed."""
    failed = [
        observed(n / 10, outcome=RequestOutcome.FAILED, reason="DEADLINE_EXCEEDED")
        for n in range(200)
    ]
    for name, found in (("before", report(drawn(1))), ("after", report(drawn(1, 0.5), failed))):
        (tmp_path / f"{name}.json").write_text(json.dumps(found))
    return str(tmp_path / "before.json"), str(tmp_path / "after.json")


def test_a_run_that_is_faster_since_slow_requests_failed_says_that_they_did(files):
    told = CliRunner().invoke(app, ["compare", *files]).stdout
    assert "faster by" in told
    counted = "before 2000 answered, 0 failed; after 2000 answered, 200 failed"
    assert f"failed requests are not compared: {counted}" in " ".join(told.split())
    found = json.loads(CliRunner().invoke(app, ["compare", "--json", *files]).stdout)
    assert found["counts"] == {
        "before": {"answered": 2000, "failed": 0},
        "after": {"answered": 2000, "failed": 200},
    }


def test_runs_without_failures_say_nothing_of_them(files):
    before, _ = files
    assert "failed" not in CliRunner().invoke(app, ["compare", before, before]).stdout


def test_other_reports_are_not_compared():
    sweep = {**report(drawn(1)), "kind": "sweep"}
    with pytest.raises(ValueError, match="is not a report of 'specmesh load run'"):
        differences(report(drawn(1)), sweep)
