"""DSI's Table 2, and branch prediction's figures and tables."""

import pytest

from specmesh.decoding.predict.closed_forms import branch_throughput, speculative_throughput
from specmesh.tools.simulate.papers.branch_figures import (
    DRAFTER_S,
    TARGET_S,
    branch_closed,
    exhaustive_points,
    hit_rate,
    largest_difference,
    least_n,
    points_of,
)
from specmesh.tools.simulate.papers.branch_tables import ROWS as BRANCH_ROWS
from specmesh.tools.simulate.papers.branch_tables import explain, shapes
from specmesh.tools.simulate.papers.table2 import (
    ROWS,
    Table2Experiment,
    row_report,
    table2_seconds,
)

STARCODER = ROWS[0]
SMALL = Table2Experiment(num_tokens=50, seeds=range(3))


@pytest.fixture(scope="module")
def reports():
    return [row_report(row, SMALL) for row in ROWS]


def test_the_ten_rows_are_those_of_the_paper():
    assert len(ROWS) == 10
    assert min(row.published_dsi_over_si for row in ROWS) == 1.29
    assert max(row.published_dsi_over_si for row in ROWS) == 1.92
    shares = {round(row.drafter_ms / row.target_ms, 2) for row in ROWS if "Phi3" in row.target}
    assert shares <= {0.65, 0.66, 0.67}


def test_dsi_beats_si_and_non_si_in_every_row(reports):
    for report in reports:
        best = {name: each["mean_s"] for name, each in report["best"].items()}
        assert best["dsi"] < best["speculative"] < best["autoregressive"], report["target"]
        assert all(ratio > 1 for ratio in report["dsi_over_si"].values()), report["target"]


def test_each_timing_holds_the_seconds_of_each_seed_and_prompt():
    experiment = Table2Experiment(num_tokens=10, seeds=(3, 8), prompts=((1, 2), (7,)), hop_s=0.001)
    report = row_report(STARCODER, experiment)
    for timing in report["timings"]:
        assert timing["seconds"] == [
            table2_seconds(
                STARCODER, timing["strategy"], timing["lookahead"], seed, prompt, 10, 0.001
            )
            for seed in (3, 8)
            for prompt in ((1, 2), (7,))
        ]


def test_the_target_alone_takes_its_latency_per_token_and_two_hops_for_all():
    seconds = table2_seconds(STARCODER, "autoregressive", None, 0, (0,), 50, hop_s=0.001)
    assert seconds == pytest.approx(50 * 20.6e-3 + 2e-3)  # it decodes on


def test_equation_1_rules_out_short_lookaheads_of_fast_drafters(reports):
    def allowed(report):
        dsi = (each for each in report["timings"] if each["strategy"] == "dsi")
        return [each["lookahead"] for each in dsi if each["satisfies_eq1"]]

    assert allowed(reports[0]) == [1, 5, 10]
    assert allowed(reports[6]) == [5, 10]  # Vicuna-13B: 37.7 ms against 2.5 ms


@pytest.mark.parametrize("alpha", [0.5, 0.8])
def test_closed_forms_and_strategies_agree_where_a_draft_hides_a_verification(alpha):
    points = points_of(alpha, num_tokens=300, seed=2)
    assert largest_difference(points) < 0.06
    for point in points:
        if point.n >= least_n():
            assert point.hit_rate_clock == pytest.approx(
                hit_rate(point.occurred_alpha, point.n), abs=0.1
            )
            assert point.branch_clock > point.si_clock
            assert point.branch_closed > point.si_closed


def test_throughput_falls_with_n_once_a_draft_hides_a_verification():
    curve = [branch_closed(TARGET_S, DRAFTER_S, n, 0.8) for n in range(least_n(), 21)]
    assert least_n() == 8
    assert curve == sorted(curve, reverse=True)


def test_where_rejection_is_predicted_the_closed_form_is_equation_8():
    assert branch_closed(5.0, 1.0, 6, 0.5) == branch_throughput(5.0, 1.0, 6, 0.5, 0.5)


def test_bonus_tokens_cost_a_surely_accepted_drafter_one_token_a_round():
    # Every round of n + 1 drafted tokens but the first goes on from a bonus token.
    assert branch_closed(2.0, 1.0, 4, 1.0) == pytest.approx(4 / 4.0)
    assert branch_throughput(2.0, 1.0, 4, 1.0, 1.0) == pytest.approx(5 / 4.0)


def test_the_exhaustive_method_is_faster_and_drafts_more_the_longer_the_draft():
    points = list(exhaustive_points(0.786, num_tokens=120, seed=0))
    assert [point.n for point in points] == list(range(8, 21))
    assert all(point.exhaustive_tokens_per_s > point.branch_tokens_per_s for point in points)
    factors = [point.compute_factor for point in points]
    assert 4 < factors[0] < factors[6] < factors[-1]


def test_the_fitted_acceptance_gives_the_published_throughput_of_speculative_sampling():
    for row in BRANCH_ROWS:
        found = explain(row, num_tokens=20, seed=0)
        assert 0.5 < found.alpha < 1
        assert speculative_throughput(
            row.target_s, row.drafter_s, found.n, found.alpha
        ) == pytest.approx(row.speculative_tokens_per_s)
        assert found.branch_clock > 0


def test_which_shapes_of_tables_3_and_4_hold():
    found = shapes([explain(row, num_tokens=20, seed=0) for row in BRANCH_ROWS])
    assert [shape for shape, holds in found.items() if not holds] == [
        "best_drafter_of_the_110M_target_is_42M_in_translation",
        "printed_speedups_are_those_of_the_printed_throughputs",
    ]
