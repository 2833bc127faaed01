"""How long responses waited on their way, by two clocks that have nothing in common but their
speed."""

from __future__ import annotations

import pytest

from specmesh.orchestrator.replicas.latencies.response_waits import WINDOW_SECONDS, ResponseWaits


@pytest.mark.parametrize("begun_s", [-1e6, 0.5, 1e6])
def test_the_quickest_response_waited_for_nothing(begun_s):
    """Its way takes 5 ms, whatever the replica's clock says."""
    waits = ResponseWaits()
    for waited_s in (0.2, 0.0, 0.3, 0.1):
        made_at = 10.0 + begun_s
        found_s = waits.add("a", made_at, 10.005 + waited_s)
    assert found_s == pytest.approx(0.1)


def test_a_replica_that_does_not_say_when_it_computed_has_nobody_wait():
    waits = ResponseWaits()
    assert [waits.add("a", 0.0, now) for now in (1.0, 2.0)] == [0.0, 0.0]


def test_each_replica_has_a_clock_of_its_own():
    waits = ResponseWaits()
    waits.add("a", 100.0, 1.0)
    assert waits.add("b", 1.0, 1.0) == 0.0
    assert waits.add("a", 101.0, 2.5) == pytest.approx(0.5)


def test_a_successor_has_another_clock():
    waits = ResponseWaits()
    waits.add("a", 100.0, 1.0)
    waits.forget("a")
    assert waits.add("a", 5.0, 2.0) == 0.0


def test_a_way_that_has_become_longer_is_no_wait_for_ever():
    waits = ResponseWaits()
    waits.add("a", 1.0, 1.0)
    found = [waits.add("a", now, now + 0.05) for now in (2.0, 302.0, 320.0, 603.0)]
    assert found == pytest.approx([0.05, 0.05, 0.05, 0.0])
    assert WINDOW_SECONDS < 301
