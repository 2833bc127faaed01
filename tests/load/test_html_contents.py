"""What the page says: sentences, settings, and numbers that are those of the report."""

import pytest
from tests.load.conftest import observed, seen, workload
from tests.load.reports import (
    OBJECTIVES,
    point,
    run_report,
    search_report,
    sweep_report,
)

from specmesh.load.commands.session import described
from specmesh.load.html import columns
from specmesh.load.html.contents import comparison, page
from specmesh.load.html.document import document
from specmesh.load.html.facts import arrivals, length
from specmesh.load.runs.summary import summarise
from specmesh.load.workload.arrivals import (
    ConstantArrivals,
    Gamma,
    Poisson,
    Ramp,
    ReplayedArrivals,
    Users,
)
from specmesh.load.workload.conversations import Conversation, Listed, Synthetic, Turn
from specmesh.load.workload.lengths import ConstantLength, Lognormal, Normal, Uniform
from specmesh.load.workload.variations import Variation


def texts(found, tone=None):
    return [each["text"] for each in found["verdict"] if tone in {None, each["tone"]}]


def fact(found, label):
    return next(each["values"] for each in found["facts"] if each["label"] == label)


def row(run, metric):
    return next(each for each in run["percentiles"] if each["metric"] == metric)


def test_a_run_with_objectives_is_judged_by_its_goodput():
    report = run_report()
    goodput = report["result"]["goodput"]
    (said,) = texts(page([("", report)]), "main")
    assert said.startswith(f"{goodput['share'] * 100:.1f} % of the requests met ")
    assert "TTFT ≤ 150 ms, end to end ≤ 1 s" in said
    assert f"goodput of {goodput['per_s']:.3g} a second" in said


def test_a_run_without_objectives_tells_answers_and_first_tokens():
    result = summarise(workload(), seen([observed(n / 10) for n in range(100)]), None)
    (said,) = texts(page([("", run_report(result))]), "main")
    assert "answers a second" in said
    assert "the first token came within 100 ms for half of them" in said


def test_objectives_are_not_judged_by_no_requests():
    result = summarise(workload(), seen([]), OBJECTIVES)
    (said,) = texts(page([("", run_report(result))]), "main")
    assert said == (
        "No request was due by which to judge whether TTFT ≤ 150 ms, end to end ≤ 1 s are met."
    )


def test_failures_and_a_late_generator_are_warnings():
    late = [observed(n / 10, sent_s=n / 10 + 0.05) for n in range(100)]
    found = texts(page([("", run_report(summarise(workload(), seen(late), None)))]), "warning")
    assert found == [
        "The generator may itself be the bottleneck: one request in a hundred was sent more than "
        "50 ms late (1 ms is allowed)."
    ]
    assert "5 of 200 requests failed, 5 with OVERLOADED." in texts(
        page([("", run_report())]), "warning"
    )


def test_a_generator_that_kept_time_says_so_with_its_lag():
    (said,) = texts(page([("", run_report())]), "plain")
    assert said == (
        "The generator was not the bottleneck: 99 in 100 requests left within 0 ms of when they "
        "were due, and its busiest process used 10 % of a core."
    )


def test_an_interrupted_run_says_so():
    found = run_report()
    found["result"]["interrupted"] = True
    assert any("interrupted" in text for text in texts(page([("", found)]), "warning"))


def test_a_sweep_tells_for_each_combination_where_it_stopped_keeping_up():
    points = [
        point(5.0, strategy="dsi"),
        point(10.0, strategy="dsi", saturated="requests pile up"),
        point(5.0, strategy="speculative", lookahead="4"),
    ]
    found = page([("", sweep_report(points))])
    dsi, speculative = texts(found, "main")
    assert dsi.startswith("dsi: keeps up with 5 a second; does not keep up with 10 (requests pile")
    assert speculative.startswith("speculative lookahead=4: keeps up with 5 a second; most goodput")
    assert [run["name"] for run in found["runs"]] == [
        "dsi 5/s",
        "dsi 10/s",
        "speculative lookahead=4 5/s",
    ]
    assert fact(found, "Arrivals") == ["replay of 3 conversations at their own pace"]
    assert fact(found, "Varied") == ["strategy: dsi, speculative; lookahead: 4"]
    assert "Strategies" not in {each["label"] for each in found["facts"]}


def test_of_several_sweeps_each_has_its_own_rates_and_options():
    poisson = workload(arrivals=Poisson(1.0), variations=(Variation(strategy="dsi"),))
    varied = sweep_report([point(5.0, strategy="dsi"), point(10.0, strategy="speculative")])
    fixed = sweep_report([point(2.0)])
    for each in (varied, fixed):
        each["setting"]["workload"] = described(poisson)
    found = page([("a", varied), ("b", fixed)])
    assert fact(found, "Arrivals") == [
        f"open loop, Poisson, {rates} conversations per second" for rates in ("5, 10", "2")
    ]
    assert fact(found, "Varied") == ["strategy: dsi, speculative", ""]
    assert fact(found, "Strategies") == ["", "dsi"]


def test_a_sweep_names_the_rates_at_which_the_generator_was_late():
    sweep = sweep_report([point(5.0), point(10.0), point(20.0)])
    for late in sweep["points"][1:]:
        made = late["result"]["generator"]
        made["lag_ms"]["p99"], made["bottleneck"] = 2.5 * late["rate"], ["sent late"]
    assert texts(page([("", sweep)]), "warning") == [
        "The generator may itself have been the bottleneck at 10, 20 a second: at worst one "
        "request in 100 was sent more than 50 ms late, and a process used 10 % of a core."
    ]


@pytest.mark.parametrize(
    ("highest", "missed", "said"),
    [
        (8.0, 9.0, "95 % of the requests meet the objectives up to 8 a second; at 9 a second"),
        (8.0, None, "95 % of the requests meet the objectives up to 8 a second ("),
        (None, 2.0, "No rate was found at which 95 % of the requests meet the objectives; at 2"),
    ],
)
def test_a_search_tells_the_highest_rate_that_met_the_objectives(highest, missed, said):
    found = page([("", search_report([point(8.0)], highest, missed))])
    assert texts(found)[0].startswith(said)


def test_a_sweep_that_was_stopped_before_its_first_end_is_a_page_without_runs():
    assert page([("", sweep_report([]))])["runs"] == []


def test_a_comparison_tells_the_means_and_what_else_differed():
    differences = [
        {
            **{"metric": "ttft_ms", "statistic": name, "before": 100.0, "after": 105.0},
            **{"low": 0.03, "high": 0.07, "in_words": "slower by 3 to 7 %"},
        }
        for name in ("mean", "p50")
    ]
    old, new = ("old", run_report()), ("after", run_report(seed=4))
    found = comparison(old, new, differences, ["seed: 0, then 4"])
    assert texts(found)[0] == "After, compared with before, in the mean: TTFT slower by 3 to 7 %."
    assert texts(found, "warning")[0] == (
        "The runs also differ, which may be what is seen: seed: 0, then 4."
    )
    assert found["names"] == ["before: old", "after"]
    assert fact(found, "Seed") == ["0", "4"]
    assert [each["label"] for each in found["differences"]] == ["TTFT", "TTFT"]


def test_percentiles_and_curves_are_those_of_the_report():
    report = run_report()
    (run,) = page([("", report)])["runs"]
    latency = report["result"]["latency"]
    for metric, distribution in latency.items():
        for name in ("count", "mean", "p50", "p99_9", "max"):
            assert row(run, metric)[name] == distribution[name]
        curve = run["cdfs"][metric][0]
        assert list(zip(curve["ms"], curve["share"], strict=True)) == [
            tuple(pair) for pair in distribution["cdf"]
        ]
    assert [curve["name"] for curve in run["cdfs"]["ttft_ms"]] == ["all", "dsi", "autoregressive"]


def test_tokens_per_chunk_have_percentiles_of_their_own():
    chunks = row(page([("", run_report())])["runs"][0], "tokens_per_chunk")
    assert {name: chunks[name] for name in ("p50", "p90", "p95", "p99", "max", "count")} == {
        **{"p50": 1, "p90": 1, "p95": 2, "p99": 5, "max": 5},
        "count": 100,
    }
    assert chunks["mean"] == pytest.approx(1.16)


def test_a_long_timeline_keeps_its_totals_and_its_peaks():
    second = {
        **{"due": 2, "answered": 1, "failed": 0, "output_tokens": 10, "under_way": 3},
        **{"ttft_p50_ms": None, "ttft_p99_ms": 5.0, "e2e_p50_ms": 9.0},
    }
    seconds = [{"t_s": n, **second} for n in range(100)]
    seconds[57] = {**seconds[57], "failed": 5, "under_way": 80, "ttft_p99_ms": 700.0}
    found = columns.timeline(seconds, 30)
    assert found["every_s"] == 4
    assert found["t_s"] == list(range(0, 100, 4))
    assert sum(found["due"]) * 4 == 200
    assert sum(found["failed"]) * 4 == 5
    assert max(found["under_way"]) == 80
    assert max(found["ttft_p99_ms"]) == 700.0
    assert set(found["ttft_p50_ms"]) == {None}


def test_samples_that_a_server_never_tells_are_left_out():
    servers = page([("", run_report())])["runs"][0]["servers"]
    assert "queue_depth" not in servers[0]["samples"]
    assert "queue_depth" in servers[1]["samples"]
    assert "forward_share" not in servers[1]["samples"]


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (Poisson(4.0), "open loop, Poisson, 4 conversations per second"),
        (ConstantArrivals(4.0), "open loop, evenly spaced, 4 conversations per second"),
        (Gamma(4.0, 2.0), "open loop, gamma with burstiness 2, 4 conversations per second"),
        (Ramp(1.0, 9.0, 60.0), "open loop, ramp from 1 to 9 conversations per second in 60 s"),
        (ReplayedArrivals((0.0, 1.0), 2.0), "replay of 2 conversations at 2 times their pace"),
        (Users(8), "closed loop, 8 users"),
        (Users(8, 2.0), "closed loop, 8 users, thinking 2 s on average"),
    ],
)
def test_every_kind_of_arrivals_has_its_words(made, said):
    assert arrivals(described(workload(arrivals=made))["arrivals"]) == said


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (ConstantLength(128), "128"),
        (Uniform(1, 9), "1 to 9"),
        (Normal(64.0, 8.0), "normal with mean 64 and standard deviation 8"),
        (Lognormal(64.0, 1.0), "lognormal with median 64 and sigma 1"),
    ],
)
def test_every_distribution_of_lengths_has_its_words(made, said):
    given = workload(conversations=Synthetic(prompt_tokens=made))
    assert length(described(given)["conversations"]["prompt_tokens"]) == said


def test_prompts_of_a_file_are_told_by_their_number():
    listed = Listed([Conversation((Turn("hi"),))] * 3)
    found = page([("", run_report(load=workload(conversations=listed)))])
    assert fact(found, "Requests") == ["3 conversations from a file"]


def test_the_model_is_named_as_it_was_asked_for():
    found = page([("", run_report(model="qwen", chat=True))])
    assert fact(found, "Model") == ["qwen, as chats"]


def test_other_files_are_refused_by_name():
    with pytest.raises(ValueError, match=r"a\.json is not a report"):
        page([("a.json", {"schema": "other/1", "kind": "run"})])
    with pytest.raises(ValueError, match="can't share a page"):
        page([("a", run_report()), ("b", sweep_report([point(1.0)]))])


def long(result, seconds, num_traces):
    """The same for longer, with as many slow and failed requests."""
    servers = [{**each, "samples": each["samples"] * (seconds // 24)} for each in result["servers"]]
    return {
        **result,
        "timeline": result["timeline"] * (seconds // 24),
        "servers": servers,
        "slowest": result["slowest"][:1] * num_traces,
        "failed": result["failed"][:1] * num_traces,
    }


def test_requests_that_a_page_leaves_out_are_counted():
    report = run_report()
    report["result"] = long(report["result"], 24, 5000)
    (run,) = page([("", report)])["runs"]
    assert len(run["slowest"]) + len(run["failed"]) + run["num_left_out"] == 10_000


def test_a_page_stays_below_a_megabyte_however_long_the_run():
    report = run_report()
    report["result"] = long(report["result"], 24 * 3600, 5000)
    assert len(document(page([("", report)]))) < 1_000_000


def test_a_page_stays_below_a_megabyte_however_many_the_rates():
    sweep = sweep_report([point(1.0)])
    (only,) = sweep["points"]
    result = long(only["result"], 600, 100)
    sweep["points"] = [{**only, "rate": float(n), "result": result} for n in range(100)]
    assert len(document(page([("", sweep)]))) < 1_000_000


def test_the_mean_between_tokens_is_shown_where_no_more_is_known():
    answers = [observed(0.1, last_s=0.6, is_counted=True)]  # five tokens, the first at 0.2 s
    load = workload()
    found = page([("", run_report(summarise(load, seen(answers), None), load))])["runs"][0]
    assert row(found, "mean_inter_token_ms")["mean"] == 100.0
    told = {each["metric"] for each in page([("", run_report())])["runs"][0]["percentiles"]}
    assert "inter_token_ms" in told
    assert "mean_inter_token_ms" not in told
