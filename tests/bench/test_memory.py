"""What is concluded from memory over time."""

from collections import Counter
from random import Random

import pytest

from specmesh.bench.memory.measure import MemorySamples
from specmesh.bench.memory.report import as_json, outcomes
from specmesh.bench.memory.samples import MemorySample, ProcessMemory, SampleLog
from specmesh.bench.memory.summary import growth, summarise
from specmesh.bench.memory.traffic import request
from specmesh.orchestrator.strategies import STRATEGIES

MB = 10**6


def wandering(slope, seed=0, noise=100_000):
    """200 samples of 25,000 requests; what is held falls back to its course again and again."""
    random = Random(seed)
    wander, points = 0.0, []
    for number in range(0, 25_000, 125):
        wander = 0.8 * wander + random.gauss(0, noise)
        points.append((number, round(50 * MB + slope * number + wander)))
    return points


def test_a_leak_of_a_few_hundred_bytes_is_seen_through_the_noise():
    found = growth(wandering(400))
    assert found.low < 400 < found.high
    assert found.verdict == "grows"


def test_memory_that_wanders_about_a_level_is_flat():
    verdicts = [growth(wandering(0, seed, noise=20_000)).verdict for seed in range(20)]
    assert verdicts.count("flat") >= 18
    assert "grows" not in verdicts


@pytest.mark.parametrize("slope", [0, 200])
def test_the_interval_holds_the_growth_in_95_of_100_runs(slope):
    found = [growth(wandering(slope, seed)) for seed in range(300)]
    held = sum(each.low <= slope <= each.high for each in found)
    assert 0.92 <= held / len(found) <= 0.98


def test_noise_too_large_to_tell_is_said_to_be():
    assert growth(wandering(0, noise=5 * MB)).verdict == "unclear"


def test_one_peak_is_no_growth():
    points = wandering(0, noise=1000)
    points[-3] = (points[-3][0], 80 * MB)
    assert growth(points).verdict == "flat"


def test_what_was_taken_in_the_first_half_does_not_count():
    samples = [
        MemorySample(n, n / 10, {"verifier-0": ProcessMemory(90 * MB, min(n, 200) * MB // 10)})
        for n in range(401)
    ]
    (process,) = summarise(samples)
    assert process.growth.mean == 0
    assert (process.at_start.private, process.at_end.private) == (0, 20 * MB)
    told = as_json(MemorySamples(samples, Counter(finished=400)), [process])
    assert told["flat"]
    assert told["processes"]["verifier-0"]["over_time"][-1] == [400, 40.0, 90 * MB, 20 * MB]


@pytest.mark.parametrize(
    ("counted", "flat"),
    [
        (Counter(finished=360, abandoned=40), True),
        (Counter(finished=360, abandoned=36, Overloaded=4), True),
        (Counter(finished=360, abandoned=35, Overloaded=5), False),
        (Counter(Unavailable=400), False),
    ],
)
def test_memory_that_is_flat_while_requests_fail_is_not_called_flat(counted, flat):
    samples = [MemorySample(n, n, {"client": ProcessMemory(2 * MB, MB)}) for n in range(401)]
    measured = MemorySamples(samples, counted)
    assert as_json(measured, summarise(samples))["flat"] == flat
    assert ("requests failed" in outcomes(measured)) == (not flat)


def test_samples_come_back_from_the_log_as_they_were():
    held = {"redis": ProcessMemory(3, 2), "client": ProcessMemory(90 * MB + 1, 80 * MB + 1)}
    samples = [MemorySample(n, n / 3, held) for n in range(5)]
    log = SampleLog(["redis", "client"], 5)
    for sample in samples:
        log.append(sample)
    assert log.samples() == samples


def test_requests_are_of_every_kind_and_the_same_in_every_run():
    asked = [request(number, ["def f(x):\n    return x\n" * 50]) for number in range(300)]
    assert asked == [request(number, ["def f(x):\n    return x\n" * 50]) for number in range(300)]
    without_heads = {name for name, kind in STRATEGIES.items() if not kind.needs_heads}
    assert {each.options["strategy"] for each in asked} == without_heads
    assert len({each.prompt for each in asked}) == 300
    abandoned = sum(each.abandon_after is not None for each in asked)
    assert abandoned == pytest.approx(30, abs=15)
