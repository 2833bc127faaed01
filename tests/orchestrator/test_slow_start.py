"""How a replica that is new comes to its share of the calls."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specmesh.orchestrator.replicas.pool.slow_start import LEAST, WINDOW_SECONDS, SlowStart

LATER = 1000.0


def shares(slow_start: SlowStart, now: float, num_calls: int = 1000) -> dict[str, float]:
    """The calls that a and b are at work on when each goes to the less busy, with reluctance."""
    busy = {"a": 0, "b": 0}
    for _ in range(num_calls):
        reluctance = slow_start.reluctance(busy, now)
        chosen = min(busy, key=lambda who: (busy[who] + 1) * reluctance[who])
        busy[chosen] += 1
    return {who: number / num_calls for who, number in busy.items()}


def test_share_of_a_new_replica_grows_with_its_age():
    slow_start = SlowStart()
    slow_start.came("a", 0.0)
    slow_start.came("b", LATER)
    found = [shares(slow_start, LATER + part * WINDOW_SECONDS)["b"] for part in (0, 0.25, 0.5, 1)]
    assert found == pytest.approx([LEAST / (1 + LEAST), 0.2, 1 / 3, 0.5], abs=0.01)


def test_nobody_is_new_for_ever():
    slow_start = SlowStart()
    slow_start.came("a", 0.0)
    assert slow_start.any_new(WINDOW_SECONDS * 0.99)
    assert not slow_start.any_new(WINDOW_SECONDS)
    slow_start.came("a", LATER)
    assert not slow_start.any_new(LATER)


def test_who_was_away_for_good_is_new_again():
    slow_start = SlowStart()
    slow_start.came("a", 0.0)
    slow_start.came("b", 0.0)
    slow_start.keep({"b"})
    slow_start.came("a", LATER)
    assert slow_start.reluctance("ab", LATER) == {"a": 1 / LEAST, "b": 1.0}


def test_who_comes_soon_after_the_first_came_with_it():
    slow_start = SlowStart()
    slow_start.came("a", 0.0)
    slow_start.came("b", WINDOW_SECONDS * 0.99)
    assert slow_start.reluctance("ab", WINDOW_SECONDS) == {"a": 1.0, "b": 1.0}


AGES = st.lists(st.floats(0, 2 * WINDOW_SECONDS), min_size=1, max_size=8)


@given(ages=AGES)
def test_eldest_is_never_held_back_and_nobody_more_than_tenfold(ages):
    slow_start = SlowStart()
    slow_start.came("first", 0.0)
    for number, age in enumerate(ages):
        slow_start.came(str(number), LATER - age)
    names = list(map(str, range(len(ages))))
    reluctance = slow_start.reluctance(names, LATER)
    assert min(reluctance.values()) == 1.0
    assert max(reluctance.values()) <= 1 / LEAST + 1e-9
    by_age = sorted(names, key=lambda name: ages[int(name)])
    assert sorted(reluctance.values(), reverse=True) == [reluctance[name] for name in by_age]


@given(age=st.floats(0, 2 * WINDOW_SECONDS), number=st.integers(1, 8))
def test_replicas_that_came_together_share_alike(age, number):
    slow_start = SlowStart()
    slow_start.came("first", 0.0)
    names = list(map(str, range(number)))
    for name in names:
        slow_start.came(name, LATER - age)
    assert set(slow_start.reluctance(names, LATER).values()) == {1.0}
