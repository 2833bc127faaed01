"""When a call is late, and when it is given up."""

from __future__ import annotations

import random

import pytest

from specmesh.orchestrator.replicas.latencies.patience import (
    GIVEN_UP_FLOOR_SECONDS,
    LATE_FLOOR_SECONDS,
    LATE_UNKNOWN_SECONDS,
    WINDOW,
    CallPatience,
)

HEDGES = True


def patience(**seconds_by_replica: float) -> CallPatience:
    """After a window of calls of 8 tokens at each replica, in turns."""
    learnt = CallPatience(ceiling_s=60.0, unknown_s=60.0)
    for _ in range(WINDOW):
        for replica, seconds in seconds_by_replica.items():
            learnt.add(replica, 8, seconds)
    return learnt


def test_nothing_is_known_before_the_first_call():
    unlearned = CallPatience(ceiling_s=60.0, unknown_s=3.0)
    assert unlearned.late_after(8) == LATE_UNKNOWN_SECONDS
    assert unlearned.given_up_after(8) == 3.0


def test_quick_calls_are_late_and_given_up_at_the_floors():
    assert patience(a=0.002).late_after(8) == LATE_FLOOR_SECONDS
    assert patience(a=0.002).given_up_after(8) == GIVEN_UP_FLOOR_SECONDS


def test_a_call_that_others_can_do_without_is_missed_for_a_few_of_their_steps_at_most():
    learnt = patience(a=0.1)
    assert learnt.missed_after(8, step_s=0.3) == GIVEN_UP_FLOOR_SECONDS
    assert learnt.missed_after(8, step_s=0.3, is_probe=True) == pytest.approx(0.6)
    assert learnt.missed_after(8, step_s=5.0) == pytest.approx(10.0)
    assert learnt.missed_after(8, step_s=50.0) == 60.0


def test_nor_is_it_missed_before_it_is_late():
    learnt = patience(a=4.0)
    assert learnt.missed_after(8, step_s=0.3) == pytest.approx(learnt.late_after(16))
    assert learnt.missed_after(8, step_s=0.3, is_probe=True) == pytest.approx(12.0, rel=0.01)
    unlearned = CallPatience(ceiling_s=60.0, unknown_s=3.0)
    assert unlearned.missed_after(8, step_s=0.3, is_probe=True) == 3.0


def test_slow_calls_are_given_their_time():
    assert patience(a=1.0).late_after(8) == pytest.approx(1.5)
    assert patience(a=1.0).given_up_after(8) == pytest.approx(10.0)
    assert patience(a=20.0).given_up_after(8) == 60.0


def test_calls_that_vary_are_late_past_the_slowest():
    rng = random.Random(1)
    learnt = CallPatience(ceiling_s=60.0, unknown_s=60.0)
    seconds = [rng.uniform(0.1, 1.0) for _ in range(WINDOW)]
    for each in seconds:
        learnt.add("a", 8, each)
    assert sorted(seconds)[-3] < learnt.late_after(8) < 2 * max(seconds)


def test_one_slow_replica_of_three_does_not_make_calls_late_later():
    alone = patience(a=0.1, b=0.1).late_after(8)
    assert patience(a=0.1, b=0.1, c=5.0).late_after(8) == pytest.approx(alone)


def test_a_long_prefill_is_no_hang():
    learnt = patience(a=0.05)
    assert learnt.late_after(8000) > 20.0
    assert learnt.given_up_after(8000) == 60.0
    for _ in range(WINDOW):
        learnt.add("a", 8000, 2.0)
    assert learnt.late_after(8000) == pytest.approx(3.0)
    assert learnt.late_after(8) == pytest.approx(0.075)


def test_shorter_calls_than_any_before_take_no_longer_than_those():
    assert patience(a=0.1).late_after(1) == patience(a=0.1).late_after(8)


def test_calls_ahead_and_calls_given_up_before_are_allowed_for():
    learnt = patience(a=0.1)
    once = learnt.given_up_after(8)
    assert learnt.given_up_after(8, num_ahead=9) == pytest.approx(10.0)
    assert learnt.given_up_after(8, num_late=2) == pytest.approx(4 * once)
    assert learnt.given_up_after(8, num_late=10_000) == 60.0


def test_pace_is_about_1_for_calls_of_all_sizes():
    learnt = CallPatience(ceiling_s=60.0, unknown_s=60.0)
    for _ in range(10):
        assert learnt.add("a", 1, 0.1) == pytest.approx(1.0)
        assert learnt.add("a", 1000, 4.0) == pytest.approx(1.0)
    assert learnt.add("a", 1, 0.5) > 4


def test_old_calls_are_forgotten():
    learnt = patience(a=5.0)
    for _ in range(WINDOW):
        learnt.add("a", 8, 0.1)
    assert learnt.late_after(8) == pytest.approx(0.15)
