"""What the benchmark of the filter makes of its runs."""

import csv
import math
from types import SimpleNamespace

import pytest
from tests.servers import running_server

from specmesh.bench.filter.bench import crowd_settings
from specmesh.bench.filter.fidelity import Fidelity, JudgedTexts
from specmesh.bench.filter.picture import draw, write_csv
from specmesh.bench.filter.report import as_json
from specmesh.bench.filter.sessions import batch_sizes, mean_batch_size
from specmesh.bench.filter.summary import SweepPoint, at_share, summarise, threshold_for
from specmesh.bench.filter.sweep import FilterSetting, speculation
from specmesh.bench.filter.thresholds import settings_at
from specmesh.confidence.__main__ import ConfidenceService, ConfidenceSettings
from specmesh.decoding.drafting import TopK
from specmesh.decoding.predict.calibration import Calibration
from specmesh.decoding.predict.confidence import log_probability
from specmesh.tools.kit.experiment import GREEDY, Run
from specmesh.traces.spans import Node, Span, SpanKind

TARGET, DRAFTER = (1, 2, 3, 4, 5), (1, 2, 9, 9, 9)
ALL, SOME, NONE = (FilterSetting("margin", threshold) for threshold in (-math.inf, 0.5, math.inf))


def run(setting, tokens, num_kept, seconds=1.0, prompt=0):
    result = SimpleNamespace(token_ids=tokens, unchecked=tuple(range(num_kept)))
    return Run(prompt, speculation(setting), GREEDY, result, seconds)


def runs(drafter_text=DRAFTER, target_text=TARGET):
    return [
        run(None, TARGET, 0, seconds=0.5),
        run(ALL, drafter_text, 5, seconds=0.25),
        run(SOME, (1, 2, 3, 9, 9), 3),
        run(NONE, target_text, 0),
    ]


def judged():
    fidelities = [Fidelity(-3.0, 0.4), Fidelity(-1.5, 0.8), Fidelity(-1.0, 1.0)]
    return JudgedTexts(fidelities, [list(DRAFTER)])


def summary(**texts):
    return summarise(runs(**texts), [ALL, SOME, NONE], judged())


def test_a_point_has_the_share_the_speed_and_the_quality_of_its_setting():
    point = summary().points[1]
    assert point == SweepPoint("margin", 0.5, 0.6, 5.0, 0.8, -1.5, text_agreement=0.6)
    assert summary().target_tokens_per_s == 10.0


def test_end_points_are_the_texts_of_the_two_models_alone():
    assert summary().end_points_exact
    assert not summary(drafter_text=TARGET).end_points_exact
    assert not summary(target_text=DRAFTER).end_points_exact


def test_margin_is_the_part_of_the_way_from_the_drafter_to_the_target():
    (margin,) = summary().margins
    # 40 % lies two thirds of the way from the target's 0 % to the 60 % that was run.
    assert margin.agreement == pytest.approx((1 / 3 * 1.0 + 2 / 3 * 0.8 - 0.4) / 0.6)
    assert margin.target_loglik == pytest.approx((-1 / 3 - 2 / 3 * 1.5 + 3) / 2)


def test_margin_is_undefined_where_the_models_are_equally_good():
    same = JudgedTexts([Fidelity(-1.0, 1.0)] * 3, [list(DRAFTER)])
    (margin,) = summarise(runs(), [ALL, SOME, NONE], same).margins
    assert math.isnan(margin.agreement)


def test_between_two_shares_values_lie_on_a_line_and_beyond_them_stay():
    values = [(0.0, 1.0), (0.5, 2.0), (0.5, 3.0), (1.0, 5.0)]
    shares = (-1.0, 0.0, 0.25, 0.5, 0.75, 1.0, 2.0)
    assert [at_share(values, share) for share in shares] == [1, 1, 1.5, 3, 4, 5, 5]


def test_threshold_for_many_sessions_comes_from_finite_ones():
    kept = {-math.inf: 5, 0.2: 3, 0.6: 1, math.inf: 0}
    made = [run(FilterSetting("margin", each), TARGET, count) for each, count in kept.items()]
    made.append(run(FilterSetting("entropy", 7.0), TARGET, 2))
    assert threshold_for(made, "margin", 0.4) == pytest.approx(0.4)
    assert threshold_for(made, "margin", 0.6) == pytest.approx(0.2)


def test_thresholds_that_are_the_same_are_timed_once():
    (setting,) = crowd_settings([run(FilterSetting("calibrated", 0.5), TARGET, 2)])
    assert setting.threshold == 0.5


async def test_scorers_are_swept_over_the_same_places_from_everything_kept_to_nothing(tmp_path):
    calibration = Calibration(slope=0.8, bias=0.4, num_positions=100)
    (tmp_path / "calibration.json").write_text(calibration.to_json())
    configured = ConfidenceSettings(calibration=tmp_path / "calibration.json")
    async with running_server(configured, ConfidenceService(configured)) as address:
        settings = await settings_at(address)
    kept = {}
    for scorer, score in {"log-probability": log_probability, "calibrated": calibration}.items():
        thresholds = [each.threshold for each in settings if each.scorer == scorer]
        assert thresholds == sorted(thresholds)
        assert (thresholds[0], thresholds[-1]) == (-math.inf, math.inf)
        scores = [score(TopK((0,), (p / 97,), 0.0)) for p in range(1, 97)]
        kept[scorer] = [sum(each > threshold for each in scores) for threshold in thresholds]
    assert kept["log-probability"] == kept["calibrated"]
    assert len(set(kept["calibrated"])) == 9


def test_csv_has_a_line_for_each_point_and_reads_back(tmp_path):
    points = summary().points
    write_csv(points, tmp_path / "points.csv")
    with (tmp_path / "points.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert [float(line["threshold"]) for line in lines] == [-math.inf, 0.5, math.inf]
    assert [float(line["target_loglik"]) for line in lines] == [-3.0, -1.5, -1.0]


def test_figure_is_a_png(tmp_path):
    draw(summary().points, tmp_path / "points.png")
    assert (tmp_path / "points.png").read_bytes().startswith(b"\x89PNG")


def test_json_spells_infinite_thresholds_out():
    report = as_json(summary(), None)
    assert [point["threshold"] for point in report["points"]] == ["-inf", 0.5, "inf"]
    assert report["end_points_exact"] is True


def test_batch_size_is_the_mean_over_batches_not_over_requests():
    # One batch of 4 and two of 1: six requests in three batches.
    sizes = batch_sizes(map(released, (4, 4, 4, 4, 1, 1)))
    assert mean_batch_size(sizes) == 2.0
    assert mean_batch_size([]) == 0


def test_only_the_callers_side_of_a_release_is_counted():
    assert batch_sizes([released(3), released(3, SpanKind.SERVER), released(None)]) == [3]


def released(batch_size, kind=SpanKind.CLIENT):
    attributes = {} if batch_size is None else {"specmesh.filter.batch_size": batch_size}
    node = Node("orchestrator", "0")
    return Span("t", "s", "", "assess", kind, node, 0, 1, attributes, is_error=False)
