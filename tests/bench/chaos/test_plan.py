"""The schedule of faults, and when one may strike."""

import itertools
from collections import Counter

import pytest

from specmesh.bench.chaos.plan import (
    LATEST_S,
    LINK_KINDS,
    PROCESS_KINDS,
    SOONEST_S,
    Fault,
    FaultKind,
    MeshShape,
    is_link,
    link,
    may_go,
    out_of_reach,
    role_of,
    schedule,
)

SHAPE = MeshShape()
HOUR_S = 3600.0


def test_a_seed_gives_the_same_schedule_again_and_another_seed_another():
    assert schedule(1, HOUR_S, SHAPE) == schedule(1, HOUR_S, SHAPE)
    assert schedule(1, HOUR_S, SHAPE) != schedule(2, HOUR_S, SHAPE)


def test_every_kind_of_fault_strikes_every_role_and_every_kind_of_link():
    struck = {(fault.kind, kind_of(fault.victim)) for fault in schedule(0, HOUR_S, SHAPE)}
    processes = {"orchestrator", "verifier", "drafter", "confidence", "redis"}
    links = {kind_of(name) for name in SHAPE.links}
    assert {victim for kind, victim in struck} == processes | links
    assert {(kind, role) for kind in PROCESS_KINDS for role in processes} <= struck
    assert {(kind, name) for kind in LINK_KINDS for name in links} <= struck


@pytest.mark.parametrize("seed", range(20))
def test_faults_leave_time_between_them_and_somebody_who_answers(seed):
    faults = schedule(seed, 300.0, SHAPE)
    assert 75 * 0.8 <= len(faults) <= 150
    for earlier, later in itertools.pairwise(faults):
        assert later.at_s - earlier.at_s >= SOONEST_S - 1e-3
    assert faults[0].at_s < LATEST_S
    for fault in faults:
        assert fault.lasts_s < 10
        assert fault.at_s + fault.lasts_s < 300.0
        under_way = [each for each in faults if each.at_s <= fault.at_s < each.at_s + each.lasts_s]
        victims = {out_of_reach(each.victim) for each in [*under_way, fault]}
        out = Counter(map(role_of, victims))
        assert out["orchestrator"] <= 1
        assert out["verifier"] <= 2
        assert out["redis"] <= 1


def test_a_fault_waits_for_those_that_are_out_of_reach_already():
    def may(victim, *out):
        return may_go(Fault(0.0, FaultKind.KILL, victim, 1.0), out, SHAPE)

    assert may("orchestrator-0")
    assert not may("orchestrator-0", "orchestrator-1")
    assert not may(link("client", "orchestrator-0"), "orchestrator-1")
    assert may("verifier-0", "verifier-1")
    assert not may("verifier-0", "verifier-1", "verifier-2")
    assert not may("verifier-0", "verifier-0")
    assert not may(link("orchestrator-1", "redis"), "redis")


def kind_of(victim):
    if not is_link(victim):
        return role_of(victim)
    return tuple(map(role_of, victim.split(">")))
