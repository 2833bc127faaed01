"""How many tokens to read are as good as a call to wait for."""

from __future__ import annotations

import math

import pytest

from specmesh.orchestrator.replicas.latencies.prefill import PrefillCost


def test_nothing_is_known_until_a_prefill_was_seen_beside_other_calls():
    cost = PrefillCost()
    cost.add(1000, 0.22)  # beside what?
    assert cost.tokens_a_call == math.inf
    cost.add(0, 0.02)
    assert cost.tokens_a_call == math.inf
    cost.add(1000, 0.22)
    assert cost.tokens_a_call == pytest.approx(100)


def test_prefills_that_take_no_longer_cost_nothing():
    cost = PrefillCost()
    cost.add(0, 0.02)
    cost.add(100, 0.02)
    cost.add(100, 0.01)
    assert cost.tokens_a_call == math.inf


def test_a_few_odd_calls_change_nothing():
    cost = PrefillCost()
    for _ in range(10):
        cost.add(0, 0.02)
        cost.add(1000, 0.22)
    for _ in range(4):
        cost.add(0, 3.0)
        cost.add(1000, 9.0)
    assert cost.tokens_a_call == pytest.approx(100)
