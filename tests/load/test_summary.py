"""What is made of observations: counts, latencies, goodput, the generator's own part."""

import json
from dataclasses import asdict, replace
from random import Random

import pytest
from tests.load.conftest import observed, seen, workload

from specmesh.load.generators.fleet import Busy
from specmesh.load.results.distributions import distribution
from specmesh.load.results.histograms import Histogram
from specmesh.load.results.objectives import Objectives
from specmesh.load.results.saturation import saturated
from specmesh.load.runs.summary import summarise
from specmesh.load.transports.observation import MeshWork, RequestOutcome
from specmesh.load.transports.transport import OUT_OF_DESCRIPTORS
from specmesh.load.workload.arrivals import ConstantArrivals, ReplayedArrivals
from specmesh.load.workload.plan import RunLength
from specmesh.load.workload.variations import Variation

TEN_SECONDS = RunLength(warm_up_s=2.0, duration_s=10.0, cool_down_s=2.0)
LOAD = workload(arrivals=ConstantArrivals(10.0), extent=TEN_SECONDS)
STEADY = [observed(n / 10) for n in range(140)]


def result(observations, load=LOAD, objectives=None, busy=(), **given):
    return summarise(load, seen(observations, busy), objectives, **given)


def test_percentiles_are_those_of_the_values_to_three_digits():
    rng = Random(5)
    values = [rng.lognormvariate(-3, 1) for _ in range(20_000)]
    found = distribution(values)
    ranked = sorted(values)
    for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99_9", 0.999)):
        expected_ms = ranked[round(share * len(values)) - 1] * 1e3
        assert getattr(found, name) == pytest.approx(expected_ms, rel=2e-3)
    assert found.max == pytest.approx(max(values) * 1e3)
    assert found.mean == pytest.approx(sum(values) / len(values) * 1e3)
    assert found.cdf[-1] == (pytest.approx(found.max), 1.0)


def test_the_curve_has_the_share_of_values_up_to_each_time():
    assert distribution([0.1, 0.2, 0.3, 0.4]).cdf == [
        (pytest.approx(100.0 * n, rel=1e-3), n / 4) for n in range(1, 5)
    ]
    assert distribution([0.1] * 9 + [0.2]).cdf == [
        (pytest.approx(100.0, rel=1e-3), 0.9),
        (pytest.approx(200.0), 1.0),
    ]
    rng = Random(3)
    values = [rng.lognormvariate(-3, 1) for _ in range(2000)]
    for time_ms, share in distribution(values).cdf:
        up_to = sum(each * 1e3 <= time_ms * 1.001 for each in values) / len(values)
        assert share == pytest.approx(up_to, abs=0.01)


def test_histograms_of_several_generators_add_up_to_that_of_all():
    rng = Random(6)
    values = [rng.expovariate(10) for _ in range(3000)]
    merged = Histogram()
    for part in (values[:1000], values[1000:]):
        merged.add(Histogram.decoded(Histogram.of(part).encoded()))
    assert merged.count == 3000
    for percent in (50, 99, 100):
        assert merged.percentile(percent) == Histogram.of(values).percentile(percent)


def test_only_the_measured_time_counts():
    slow_warm_up = [observed(n / 10, e2e_s=30.0) for n in range(20)]
    found = result([*slow_warm_up, *STEADY[20:]])
    assert found.counts.due == 100
    assert found.latency.e2e_ms.max == pytest.approx(500.0)
    assert found.throughput.offered_per_s == pytest.approx(10.0)
    # The first half second sees the ends of requests from before; there were none.
    assert found.throughput.answered_per_s == pytest.approx(9.5, abs=0.11)
    assert found.throughput.output_tokens_per_s == pytest.approx(47.5, abs=0.6)
    assert len(found.timeline) == 32


def test_each_second_has_the_tokens_of_answers_alone_as_throughput_has():
    ends = (RequestOutcome.ANSWERED, RequestOutcome.CANCELLED, RequestOutcome.FAILED)
    found = result([observed(5.0, outcome=outcome) for outcome in ends])
    assert [each.output_tokens for each in found.timeline if each.output_tokens] == [5]
    assert found.throughput.output_tokens_per_s == pytest.approx(5 / 10)


def test_tpot_leaves_out_the_first_token():
    found = result(STEADY)
    assert found.latency.tpot_ms.mean == pytest.approx((500 - 100) / 4)


def test_goodput_is_the_share_within_all_objectives_and_failures_miss_them():
    failed = observed(3.05, outcome=RequestOutcome.FAILED, reason="OVERLOADED", first_s=None)
    cancelled = observed(3.06, outcome=RequestOutcome.CANCELLED)
    late = observed(3.07, ttft_s=0.3)
    found = result([*STEADY, failed, cancelled, late], objectives=Objectives(ttft_s=0.2, e2e_s=1))
    assert found.goodput.share == pytest.approx(100 / 102)
    assert found.goodput.per_s == pytest.approx(10.0, abs=0.11)
    assert found.goodput.objectives_ms == {"ttft": 200.0, "e2e": 1000.0}
    assert found.errors == {"OVERLOADED": 1}
    counts = found.counts
    assert (counts.due, counts.answered, counts.failed, counts.cancelled) == (103, 101, 1, 1)


def test_an_answer_without_a_token_is_answered_but_misses_an_objective_for_the_first():
    empty = [observed(n / 10, first_s=None, num_output_tokens=0) for n in range(140)]
    found = result(empty, objectives=Objectives(ttft_s=0.2, e2e_s=1))
    assert (found.counts.answered, found.counts.failed, found.goodput.share) == (100, 0, 0.0)
    assert result(empty, objectives=Objectives(tpot_s=0.1, e2e_s=1)).goodput.share == 1.0


def test_the_goodput_of_no_requests_is_unknown():
    cancelled = [observed(n / 10, outcome=RequestOutcome.CANCELLED) for n in range(140)]
    for observations in ([], cancelled):
        assert result(observations, objectives=Objectives(e2e_s=1)).goodput.share is None


def test_goodput_a_second_counts_by_when_answers_ended_as_throughput_does():
    """Each answer takes four seconds: those that end in the measured time began before it."""
    long_ones = [observed(n / 10, e2e_s=4.0) for n in range(140)]
    found = result(long_ones, objectives=Objectives(e2e_s=5))
    assert found.goodput.per_s == found.throughput.answered_per_s
    late_half = [observed(n / 10, e2e_s=6.0 if n % 2 else 4.0, conversation=n) for n in range(140)]
    found = result(late_half, objectives=Objectives(e2e_s=5))
    assert found.goodput.share == pytest.approx(0.5)
    assert found.goodput.per_s == pytest.approx(4.1)  # Every other of 81, due from 0 to 8 s.


def test_what_the_mesh_spent_is_told_by_token_and_nothing_of_others():
    work = MeshWork(
        num_verify_calls=2,
        num_target_tokens=6,
        num_drafted_tokens=4,
        num_verified_tokens=4,
        num_accepted_tokens=3,
        num_wasted_tokens=1,
    )
    found = result([observed(n / 10, work=work) for n in range(140)])
    assert asdict(found.speculation) == {
        "acceptance": 0.75,
        "wasted_per_token": 0.2,
        "target_calls_per_token": 0.4,
        "target_tokens_per_token": 1.2,
    }
    assert result(STEADY).speculation is None


def test_the_kinds_of_a_mix_are_told_apart():
    load = workload(
        extent=TEN_SECONDS, variations=(Variation(strategy="dsi"), Variation(strategy="filter"))
    )
    mixed = [observed(n / 10, variation=n % 2, e2e_s=0.3 + n % 2) for n in range(140)]
    dsi, filtered = result(mixed, load).variations
    assert (dsi.name, dsi.counts.due, dsi.latency.e2e_ms.p50) == ("dsi", 50, pytest.approx(300.0))
    assert filtered.latency.e2e_ms.p50 == pytest.approx(1300.0)


def test_a_generator_that_sends_late_says_so():
    late = [observed(n / 10, sent_s=n / 10 + 0.004) for n in range(140)]
    made = result(late).generator
    assert made.lag_ms.p99 == pytest.approx(4.0, rel=1e-3)
    (reason,) = made.bottleneck
    assert reason == "one request in a hundred was sent more than 4 ms late (1 ms is allowed)"
    assert result(STEADY).generator.bottleneck == []


def test_a_generator_that_uses_up_its_core_says_so():
    busy = [Busy(t, 0.97 * t) for t in range(15)]
    made = result(STEADY, busy=busy).generator
    assert made.processes[0].cpu_share == pytest.approx(0.97)
    assert made.bottleneck == ["a generator process used 97% of a core"]


def test_a_generator_that_may_open_no_more_files_says_so():
    lost = observed(3.0, outcome=RequestOutcome.FAILED, reason=OUT_OF_DESCRIPTORS)
    (reason,) = result([*STEADY, lost]).generator.bottleneck
    assert reason.startswith("no file descriptor was left for 1 of the requests: raise the limit")


def test_a_run_that_an_amount_ended_lasts_until_its_last_answer():
    load = workload(arrivals=ConstantArrivals(10.0), extent=RunLength(max_conversations=20))
    found = result(STEADY[:20], load)
    assert found.measured_until_s == pytest.approx(1.9 + 0.5)


def test_a_load_that_ends_before_its_duration_is_measured_until_its_last_answer():
    sixty = RunLength(duration_s=6.0, max_conversations=60)
    ended = [observed((n + 1) / 50, conversation=n) for n in range(60)]
    found = result(ended, workload(arrivals=ConstantArrivals(50.0), extent=sixty))
    assert found.measured_until_s == pytest.approx(1.2 + 0.5)
    assert found.throughput.offered_per_s == pytest.approx(50.0)
    replayed = ReplayedArrivals(tuple(each.due_s for each in ended))
    found = result(ended, workload(arrivals=replayed, extent=RunLength(duration_s=6.0)))
    assert found.measured_until_s == pytest.approx(1.2 + 0.5)


def test_a_load_that_time_ends_is_measured_for_its_duration_whatever_its_amount_may_be():
    extent = replace(TEN_SECONDS, max_conversations=1000)
    load = workload(arrivals=ConstantArrivals(10.0), extent=extent)
    assert result(STEADY, load).measured_until_s == 12.0


def test_a_burst_is_offered_while_it_is_answered():
    load = workload(extent=RunLength(max_conversations=3))
    found = result([observed(0.0, conversation=n) for n in range(3)], load)
    assert found.throughput.offered_per_s == pytest.approx(3 / 0.5)


@pytest.mark.parametrize(("num_sent", "until_s"), [(140, 12.0), (70, 6.9 + 0.5)])
def test_a_run_that_is_interrupted_is_measured_until_then_without_its_cool_down(num_sent, until_s):
    found = summarise(LOAD, replace(seen(STEADY[:num_sent]), interrupted=True), None)
    assert found.measured_until_s == pytest.approx(until_s)
    assert found.throughput.offered_per_s == pytest.approx(10.0, rel=0.1)


def test_the_slowest_and_the_failed_are_named():
    slow = observed(4.0, e2e_s=9.0, trace_id="5" * 32, conversation=77)
    failed = observed(5.0, outcome=RequestOutcome.FAILED, reason="UNAVAILABLE", trace_id="f" * 32)
    found = result([*STEADY, slow, failed], num_slowest=2)
    assert (found.slowest[0].trace_id, found.slowest[0].conversation) == ("5" * 32, 77)
    assert len(found.slowest) == 2
    assert [each.reason for each in found.failed] == ["UNAVAILABLE"]


def test_a_report_is_plain_json():
    written = json.dumps(asdict(result(STEADY)), allow_nan=False)
    assert json.loads(written)["counts"]["due"] == 100


def test_a_server_that_keeps_up_is_not_saturated_however_long_answers_take():
    assert saturated(result(STEADY)) == ""
    long_ones = [observed(n / 10, e2e_s=1.5) for n in range(140)]
    assert saturated(result(long_ones)) == ""


def test_requests_that_pile_up_are_saturation():
    many = workload(arrivals=ConstantArrivals(100.0), extent=TEN_SECONDS)
    # Seventy a second are answered, a hundred come.
    piling = [observed(n / 100, e2e_s=n / 70 - n / 100 + 0.1) for n in range(1400)]
    assert saturated(result(piling, many)).startswith("requests pile up: ")


def test_requests_that_pile_up_are_seen_in_a_run_that_their_number_ends():
    load = workload(arrivals=ConstantArrivals(40.0), extent=RunLength(max_conversations=400))
    # Ten a second are answered, forty come: most answers end after the last request was due.
    piling = [observed((n + 1) / 40, e2e_s=(n + 1) * (1 / 10 - 1 / 40)) for n in range(400)]
    found = result(piling, load)
    assert found.throughput.offered_per_s == pytest.approx(40.0)
    assert found.throughput.answered_per_s == pytest.approx(10.0)
    assert saturated(found).startswith("requests pile up: ")


def test_failures_are_saturation():
    failed = [
        observed(n / 10, outcome=RequestOutcome.FAILED, reason="OVERLOADED")
        if n % 10 == 0
        else each
        for n, each in enumerate(STEADY)
    ]
    assert saturated(result(failed)) == "10% failed, most with OVERLOADED"
