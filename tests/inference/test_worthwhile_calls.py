"""The number of calls that a forward should have, by the times of forwards."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import pytest

from specmesh.inference.model import ForwardSize
from specmesh.verifier.worthwhile_calls import (
    INTERVAL,
    INTERVAL_MS,
    LEAST_CALLS,
    LEAST_FORWARDS,
    MOST_CALLS,
    NUM_FORWARDS,
    WorthwhileCalls,
)

NO_BOUND = 0


def worthwhile(forwards: Iterable[tuple[int, float]]) -> int:
    """The estimate after ``forwards``, the last of them repeated until another estimate is due."""
    known = WorthwhileCalls()
    all_of_them = list(forwards)
    for num_calls, milliseconds in (*all_of_them, *all_of_them[-1:] * INTERVAL):
        most = known.learn(ForwardSize(num_calls), milliseconds)
    return most if all_of_them else known.learn(ForwardSize(), 0.0)


def forwards(fixed_ms: float, each_ms: float) -> list[tuple[int, float]]:
    return [
        (calls, fixed_ms + each_ms * calls) for calls in range(1, 65) for _ in range(LEAST_FORWARDS)
    ]


def test_company_that_costs_nothing_is_always_welcome():
    assert worthwhile(forwards(30, 0)) == NO_BOUND
    assert worthwhile(forwards(30, -0.1)) == NO_BOUND


def test_a_bound_that_no_load_reaches_is_none():
    """Its number would not fit the message."""
    assert worthwhile(forwards(30, 1e-12)) == NO_BOUND
    assert NO_BOUND < worthwhile(forwards(30, 0.01)) < MOST_CALLS


def test_twice_the_company_at_the_bound_brings_a_third_more_calls_a_second():
    fixed_ms, each_ms = 40.0, 1.0
    most = worthwhile(forwards(fixed_ms, each_ms))
    assert most == pytest.approx(80)

    def speed(calls: float) -> float:
        return calls / (fixed_ms + each_ms * calls)

    assert speed(most) / speed(most / 2) == pytest.approx(4 / 3)


@pytest.mark.parametrize("fixed_ms", [0, 10])
def test_a_forward_may_always_have_some_company(fixed_ms: float):
    assert worthwhile(forwards(fixed_ms, 5)) == LEAST_CALLS


@pytest.mark.parametrize("seen", [[], [(8, 20.0)], [(8, 20.0), (12, 30.0)]])
def test_forwards_of_about_one_size_say_nothing_of_company(seen: list[tuple[int, float]]):
    assert worthwhile(seen) == NO_BOUND


def test_quick_forwards_are_learnt_from_less_often_than_slow_ones():
    def num_until_known(milliseconds: float) -> int:
        known = WorthwhileCalls()
        for number in range(1000):
            calls = 32 if number % 2 else 8
            if known.learn(ForwardSize(calls), calls * milliseconds) != NO_BOUND:
                return number
        return 1000

    assert num_until_known(1.0) == INTERVAL
    assert num_until_known(INTERVAL_MS / 2000) == pytest.approx(100, abs=2)


def test_what_few_calls_took_is_remembered_under_a_load_whose_times_are_noise():
    random = Random(3)
    calls = [random.randint(32, 63) for _ in range(100 * NUM_FORWARDS)]
    load = [(each, (30 + 5 * each) * random.uniform(1, 4)) for each in calls]
    before = [each for each in forwards(30, 5) if each[0] < 32]
    assert worthwhile([*before, *load]) < 2 * LEAST_CALLS


def test_forwards_that_something_else_has_slowed_down_do_not_count():
    usual = forwards(40, 1) * 4
    slow = [(calls, 10 * milliseconds) for calls, milliseconds in usual]
    mixed = [each for pair in zip(usual, slow, strict=True) for each in pair]
    assert worthwhile(mixed) == pytest.approx(80)


def test_of_calls_that_shared_a_forward_the_quickest_counts():
    """The others have read prompts, in forwards before it."""
    known = WorthwhileCalls()
    for num_calls, milliseconds in (*forwards(40, 1), *forwards(40, 1)):
        forward = ForwardSize(num_calls)
        for more_ms in (300.0, 0.0, 700.0):
            most = known.learn(forward, milliseconds + more_ms)
    assert most == pytest.approx(80)


def test_a_size_of_which_there_are_few_forwards_does_not_count():
    """The first of one call reads a prompt."""
    usual = [each for each in forwards(40, 1) if each[0] > 1]
    assert worthwhile([(1, 600.0), *usual]) == worthwhile(usual)


def test_times_that_change_are_learnt_anew():
    slow, fast = forwards(30, 5), forwards(30, 0.01)
    assert worthwhile([*slow, *(fast * (NUM_FORWARDS // LEAST_FORWARDS))]) > 1000
