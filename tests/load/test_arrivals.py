"""Arrivals have the rates and spreads that their names promise, and are the same for a seed."""

import itertools
from random import Random
from statistics import fmean, pstdev

import pytest

from specmesh.load.workload.arrivals import (
    ConstantArrivals,
    Gamma,
    Poisson,
    Ramp,
    ReplayedArrivals,
    Users,
    pause_after,
)
from specmesh.load.workload.conversations import Synthetic
from specmesh.load.workload.lengths import ConstantLength
from specmesh.load.workload.plan import RunLength, RunPhase, Workload
from specmesh.load.workload.variations import Variation

MANY = 20_000


def gaps(arrivals, seed=1):
    times = list(itertools.islice(arrivals.times(Random(seed)), MANY))
    assert times == sorted(times)
    return [after - before for before, after in itertools.pairwise([0.0, *times])]


def workload(arrivals, **extent):
    return Workload(
        arrivals=arrivals,
        conversations=Synthetic(prompt_tokens=ConstantLength(4)),
        extent=RunLength(**extent),
        variations=(Variation(),),
        output_tokens=None,
    )


def test_constant_arrivals_are_evenly_spaced():
    assert gaps(ConstantArrivals(4.0)) == pytest.approx([0.25] * MANY)


def test_poisson_gaps_are_exponential():
    found = gaps(Poisson(5.0))
    assert fmean(found) == pytest.approx(0.2, rel=0.03)
    assert pstdev(found) == pytest.approx(0.2, rel=0.05)
    assert sum(gap > 0.2 for gap in found) / MANY == pytest.approx(0.3679, rel=0.05)


@pytest.mark.parametrize("burstiness", [0.5, 1.0, 3.0])
def test_burstiness_is_the_coefficient_of_variation_of_the_gaps(burstiness):
    found = gaps(Gamma(5.0, burstiness))
    assert fmean(found) == pytest.approx(0.2, rel=0.08)
    assert pstdev(found) / fmean(found) == pytest.approx(burstiness, rel=0.08)


@pytest.mark.parametrize("burstiness", [0.5, 1.0, 5.0, 10.0])
def test_bursts_offer_what_their_rate_says_from_the_start(burstiness):
    """Also in short runs, in which a burst at the start would be a large share."""
    runs = [Gamma(5.0, burstiness).times(Random(seed)) for seed in range(4000)]
    counts = [sum(1 for _ in itertools.takewhile(lambda at: at < 30.0, run)) for run in runs]
    assert fmean(counts) == pytest.approx(150, rel=0.05)


@pytest.mark.parametrize(("first", "last"), [(10.0, 100.0), (100.0, 10.0), (50.0, 50.0)])
def test_a_ramp_goes_evenly_from_one_rate_to_the_other_and_stays(first, last):
    times = list(
        itertools.takewhile(lambda at: at < 110, Ramp(first, last, 100.0).times(Random(3)))
    )
    for begin in (0, 45, 90, 100):
        middle_s = begin + 5
        expected = last if begin == 100 else first + (last - first) * middle_s / 100
        arrived = sum(begin <= at < begin + 10 for at in times)
        assert arrived == pytest.approx(10 * expected, rel=0.2)


def test_a_replay_keeps_its_times_or_is_faster():
    assert list(ReplayedArrivals((0.0, 1.0, 5.0)).times(Random())) == [0.0, 1.0, 5.0]
    assert list(ReplayedArrivals((0.0, 1.0, 5.0), speed=2.0).times(Random())) == [0.0, 0.5, 2.5]


def test_users_think_as_long_as_they_are_told_in_the_mean():
    rng = Random(4)
    assert fmean(Users(1, 2.0).think(rng) for _ in range(MANY)) == pytest.approx(2.0, rel=0.03)
    assert Users(1).think(rng) == 0.0


def test_generators_share_one_schedule_however_many_they_are():
    load = workload(Poisson(50.0), duration_s=10.0)
    alone = list(load.beginnings(0, 1))
    shared = sorted(itertools.chain.from_iterable(load.beginnings(n, 3) for n in range(3)))
    assert shared == alone
    assert 400 < len(alone) < 600


def test_a_seed_gives_the_same_requests_and_another_one_others():
    load = workload(Poisson(50.0), duration_s=1.0)
    assert list(load.beginnings(0, 1)) == list(load.beginnings(0, 1))
    assert load.conversation(7) == load.conversation(7)
    assert load.conversation(7) != load.conversation(8)
    assert load.fate(7, 0, None) == load.fate(7, 0, None)


def test_a_run_ends_by_time_or_by_number():
    assert len(list(workload(ConstantArrivals(10.0), duration_s=2.05).beginnings(0, 1))) == 20
    assert len(list(workload(ConstantArrivals(10.0), max_conversations=7).beginnings(0, 1))) == 7


def test_only_what_is_due_between_warm_up_and_cool_down_is_measured():
    extent = RunLength(warm_up_s=2.0, duration_s=3.0, cool_down_s=1.0)
    phases = [extent.phase(at) for at in (0.0, 1.999, 2.0, 4.999, 5.0, 5.9)]
    warm, measured, cool = RunPhase.WARM_UP, RunPhase.MEASURED, RunPhase.COOL_DOWN
    assert phases == [warm, warm, measured, measured, cool, cool]
    assert extent.total_s == 6.0


def test_a_pause_after_failures_doubles_up_to_a_second():
    pauses = [pause_after(num_failures) for num_failures in (0, 1, 2, 7, 8, 5000)]
    assert pauses == pytest.approx([0.0, 0.01, 0.02, 0.64, 1.0, 1.0])
