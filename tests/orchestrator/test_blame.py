"""The processes that a call has lost are evidence about its request."""

from __future__ import annotations

from specmesh.orchestrator.replicas.pool.outliers import Outliers
from specmesh.orchestrator.replicas.retries.blame import Blame


def blame() -> Blame:
    return Blame(Outliers(), "request")


def test_processes_lost_by_a_call_and_its_hedge_count_once():
    found = blame()
    found.lost("a", 1, attempt=1)
    found.lost("b", 2, attempt=1)
    assert found.may_kill
    assert found.confined_to is None
    found.lost("c", 3, attempt=2)
    assert found.confined_to == {"a", "b", "c"}
    assert not found.deadly
    found.lost("b", 4, attempt=3)
    assert found.deadly


def test_call_that_lost_two_replicas_one_after_the_other_stays_with_them():
    found = blame()
    found.lost("a", 1, attempt=1)
    found.lost("b", 2, attempt=2)
    assert found.confined_to == {"a", "b"}
    assert not found.deadly


def test_request_that_kills_what_took_the_place_of_a_lost_process_is_deadly():
    for successor, process in (("a", 3), ("c", 3)):
        found = blame()
        found.lost("a", 1, attempt=1)
        found.lost("b", 2, attempt=2)
        if successor == "c":
            found.succeeded("c")
        assert successor in found.confined_to
        found.lost(successor, process, attempt=3)
        assert found.deadly


def test_process_that_lives_clears_the_request():
    found = blame()
    found.lost("a", 1, attempt=1)
    found.lost("b", 2, attempt=2)
    found.succeeded("c")
    found.lost("c", 3, attempt=3)
    found.survived("a", 1)
    assert not found.deadly


def test_process_whose_connection_breaks_twice_is_one():
    found = blame()
    found.lost("a", 1, attempt=1)
    found.lost("a", 1, attempt=2)
    found.lost("b", 2, attempt=3)
    assert not found.deadly
