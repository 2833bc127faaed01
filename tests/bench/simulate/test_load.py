"""Meshes under load in virtual time."""

import pytest
from tests.simulation.meshes import mesh_of

from specmesh.orchestrator.strategies import STRATEGIES
from specmesh.orchestrator.strategies.base import Goal
from specmesh.orchestrator.strategies.chains.reach import Reach
from specmesh.simulation.law import Law
from specmesh.simulation.models import AcceptanceRates
from specmesh.tools.simulate.load import SimulatedLoad, run_load


def mesh(num_verifiers=2):
    return mesh_of(0.02, (0.005,), num_verifiers)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_token_is_accounted_for(strategy):
    found = run_load(
        SimulatedLoad(strategy, Goal(30), num_requests=8, rate_per_s=5.0, seed=3), mesh()
    )
    assert found.num_tokens == 8 * 30
    assert found.num_wasted_tokens == found.num_drafted_tokens - found.num_accepted_tokens
    assert found.num_accepted_tokens <= found.num_verified_tokens
    assert found.first_token_s.p50 <= found.latency_s.p50 <= found.latency_s.p99
    assert found.tokens_per_s == pytest.approx(240 / found.duration_s)
    for share in (*found.verifier_utilisation, *found.drafter_utilisation):
        assert 0 <= share <= 1


def test_the_same_seed_gives_the_same_run():
    load = SimulatedLoad("dsi", Goal(20), num_requests=5, rate_per_s=10.0, seed=7)
    model = mesh_of(Law.drawn({10: 3, 50: 1}), (0.004,), 3)
    assert run_load(load, model) == run_load(load, model)


def test_a_lone_target_is_busy_all_the_time_when_all_come_at_once():
    found = run_load(
        SimulatedLoad("autoregressive", Goal(10), num_requests=4), mesh(num_verifiers=1)
    )
    assert found.verifier_utilisation == pytest.approx([1.0])
    assert found.drafter_utilisation == [0.0]
    assert found.duration_s == pytest.approx(4 * 10 * 0.02)


def test_a_chain_that_can_hardly_stand_leaves_the_drafter_to_others(monkeypatch):
    """Eight answers at once, of two replicas and one drafter."""
    model = mesh_of(0.04, (0.003,), num_verifiers=2)
    load = SimulatedLoad("dsi", Goal(100), num_requests=8)
    bounded = run_load(load, model)
    monkeypatch.setattr(Reach, "beyond_committed", lambda self, chain: 1e9)
    unbounded = run_load(load, model)
    assert bounded.num_wasted_tokens < 0.7 * unbounded.num_wasted_tokens
    assert bounded.duration_s < 0.8 * unbounded.duration_s


def test_heads_may_know_less_than_the_drafter():
    model = mesh_of(0.04, (0.003,), num_verifiers=1, heads_s=0.001)

    def seconds(strategy, **rates):
        load = SimulatedLoad(strategy, Goal(200), rates=AcceptanceRates(**rates))
        return run_load(load, model).duration_s

    assert seconds("heads") == seconds("heads", heads=0.8)
    assert seconds("heads", heads=0.3) > 1.5 * seconds("heads")
    assert seconds("tree", heads=0.3) == seconds("tree")


def test_requests_come_at_the_rate_asked_for():
    load = SimulatedLoad("autoregressive", Goal(1), num_requests=400, rate_per_s=50.0)
    found = run_load(load, mesh())
    assert found.duration_s == pytest.approx(400 / 50.0, rel=0.2)


def lone_answers_s(strategy, *, acceptance=0.6, heads_acceptance=None, width=None, **model):
    """Their mean time, one after the other, with a target of 0.1 s and a drafter of 0.005 s."""
    rates = AcceptanceRates(acceptance, heads=heads_acceptance)
    load = SimulatedLoad(strategy, Goal(100, width=width), 4, 0.001, rates)
    return run_load(load, mesh_of(0.1, (0.005,), **model)).latency_s.mean


def test_heads_save_dsi_time_even_if_they_are_right_less_often_than_the_drafter():
    without = lone_answers_s("dsi", num_verifiers=4)
    heads = {"num_verifiers": 4, "heads_s": 0.001}
    assert lone_answers_s("dsi", **heads, heads_acceptance=0.4) < 0.95 * without
    assert lone_answers_s("dsi", **heads, heads_acceptance=0.6) < 0.85 * without


def test_at_a_single_replica_that_waits_for_drafts_heads_save_time_if_they_are_as_good():
    without = lone_answers_s("dsi", num_verifiers=1)
    heads = {"num_verifiers": 1, "heads_s": 0.001}
    assert lone_answers_s("dsi", **heads, heads_acceptance=0.4) < 1.1 * without
    assert lone_answers_s("dsi", **heads, heads_acceptance=0.6) < 0.9 * without


@pytest.mark.parametrize("heads_s", [0.01, 0.1])
def test_slow_heads_cost_dsi_little(heads_s):
    without = lone_answers_s("dsi", acceptance=0.85, num_verifiers=4)
    slowed = {"num_verifiers": 4, "heads_s": heads_s, "heads_acceptance": 0.4}
    assert lone_answers_s("dsi", acceptance=0.85, **slowed) < 1.04 * without


def test_second_choices_save_time():
    without = lone_answers_s("branch-prediction", num_verifiers=4)
    assert lone_answers_s("branch-prediction", num_verifiers=4, width=16) < 0.95 * without


def test_dsi_without_a_lookahead_takes_less_time_and_drafts_less_than_the_papers():
    def answers(lookahead=None):
        model = mesh_of(0.1, (0.01,), num_verifiers=7)
        goal = Goal(60, lookahead=lookahead)
        return run_load(SimulatedLoad("dsi", goal, 20, 0.001, AcceptanceRates(0.6)), model)

    best, own = answers(lookahead=1), answers()
    assert own.latency_s.mean < 0.95 * best.latency_s.mean
    assert sum(own.drafter_utilisation) < 0.6 * sum(best.drafter_utilisation)
