"""Speeds of ways on a machine that is not always as fast."""

import random

import pytest

from specmesh.tools.profile.tries.polish import polished


def test_what_all_have_in_common_in_a_pass_is_the_machines():
    speeds, machine = {"a": 10.0, "b": 11.0, "c": 5.0}, (1.0, 0.5, 1.0, 0.8, 1.25)
    table = {way: {n: speed * m for n, m in enumerate(machine)} for way, speed in speeds.items()}
    found = polished(table)
    assert found["b"] / found["a"] == pytest.approx(1.1)
    assert found["c"] / found["a"] == pytest.approx(0.5)


def test_ways_of_different_passes_are_compared_by_those_that_were_in_both():
    table = {"a": {0: 10.0, 1: 5.0}, "slow": {0: 8.0}, "new": {1: 6.0}}
    found = polished(table)
    assert found["slow"] / found["a"] == pytest.approx(0.8)
    assert found["new"] / found["a"] == pytest.approx(1.2)


def test_one_disturbed_try_counts_for_little():
    rng = random.Random(4)
    speeds = {"a": 10.0, "b": 10.5, "c": 9.0}
    table = {
        way: {n: speed * rng.uniform(0.99, 1.01) for n in range(9)} for way, speed in speeds.items()
    }
    table["b"][4] = 2.0
    found = polished(table)
    assert found["b"] / found["a"] == pytest.approx(1.05, rel=0.01)
    assert found["b"] == pytest.approx(10.5, rel=0.02)
