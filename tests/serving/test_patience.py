"""How long a store is worth waiting for."""

from __future__ import annotations

import random

import pytest

from specmesh.serving.store.patience import LONGEST_S, SHORTEST_S, StorePatience


def after(*seconds: float) -> StorePatience:
    patience = StorePatience()
    for each in seconds:
        patience.answered(each)
    return patience


def test_store_that_has_not_answered_yet_gets_all_the_time_there_is() -> None:
    assert StorePatience().seconds == LONGEST_S


def test_quick_store_is_not_given_up_for_one_hiccup_of_the_machine() -> None:
    assert after(*[0.001] * 100).seconds == SHORTEST_S


def test_patience_follows_a_store_that_has_become_slow_and_one_that_is_quick_again() -> None:
    slow = after(*[0.001] * 100, *[0.1] * 20)
    assert 0.1 < slow.seconds <= LONGEST_S
    for _ in range(100):
        slow.answered(0.001)
    assert slow.seconds == SHORTEST_S


def test_nobody_is_kept_waiting_longer_than_the_longest() -> None:
    assert after(*[30.0] * 10).seconds == LONGEST_S


def test_store_that_is_away_is_not_waited_for_until_it_answers() -> None:
    patience = after(0.001)
    patience.failed()
    assert patience.seconds == 0
    patience.answered(0.001)
    assert patience.seconds == pytest.approx(SHORTEST_S)


def test_hardly_any_answer_of_a_noisy_store_comes_too_late() -> None:
    rng = random.Random(7)
    patience, num_late = after(0.02), 0
    for _ in range(10_000):
        seconds = rng.lognormvariate(-3.5, 0.5)
        num_late += seconds > patience.seconds
        patience.answered(seconds)
    assert num_late < 100
