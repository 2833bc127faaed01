"""Quantiles of the latest values."""

from __future__ import annotations

import random
from statistics import median

import pytest

from specmesh.orchestrator.replicas.latencies.sliding import WINDOW, RunningMedian, SlidingWindow


@pytest.mark.parametrize("most_at_a_time", [1, 5, 40, 3 * WINDOW])
def test_a_median_is_that_of_the_latest_values_however_often_it_is_asked_for(most_at_a_time: int):
    rng = random.Random(most_at_a_time)
    running, values = RunningMedian(), list[float]()
    assert running.value is None
    for _ in range(50):
        for _ in range(rng.randint(1, most_at_a_time)):
            values.append(rng.uniform(0.001, 1))
            running.add(values[-1])
        assert running.value == float(f"{median(values[-WINDOW:]):.1e}")


@pytest.mark.parametrize("batch", [1, 3, 10, 25])
def test_a_window_forgets_all_but_its_latest_values(batch: int):
    rng = random.Random(batch)
    window, values = SlidingWindow(8), list[float]()
    for _ in range(20):
        new = [rng.random() for _ in range(batch)]
        window.extend(new)
        values += new
        latest = sorted(values[-8:])
        assert [window.at(0), window.at(1)] == [latest[0], latest[-1]]
        assert window.median == median(latest)
