"""The depth of drafts that pays, from the times of a round."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specmesh.decoding.predict.closed_forms import walltime_factor
from specmesh.decoding.predict.round_costs import RoundCosts

RATES = st.floats(0, 1)


def alone(level_s: float, token_s: float = 0.0) -> RoundCosts:
    """The costs at a replica that the answer has to itself, whose verification takes a second."""
    return RoundCosts(1.0, level_s, token_s, alone_s=1.0)


def shared(level_s: float, token_s: float = 0.0) -> RoundCosts:
    """The costs at a replica that begins a forward every second, whoever is ready."""
    return RoundCosts(1.0, level_s, token_s, alone_s=1.0, period_s=1.0)


@given(RATES, st.floats(0, 2), st.integers(0, 30))
def test_the_best_depth_is_the_best_of_all_gammas(alpha, cost_ratio, limit):
    best = alone(cost_ratio).best_depth(alpha, limit)
    assert 0 <= best <= limit
    for gamma in range(limit + 1):
        ahead = walltime_factor(alpha, best, cost_ratio) - walltime_factor(alpha, gamma, cost_ratio)
        assert ahead > -1e-12


def test_drafting_pays_exactly_when_alpha_exceeds_the_cost():
    # Corollary 3.9 of Leviathan et al.
    assert alone(0.49).best_depth(0.5, 20) > 0
    assert alone(0.51).best_depth(0.5, 20) == 0
    assert alone(0.1, token_s=0.41).best_depth(0.5, 20) == 0


def test_a_draft_that_misses_a_shared_forward_must_make_up_for_all_of_it():
    """Two seconds instead of one are worth it if more than one draft token is accepted."""
    assert shared(0.15).best_depth(0.45, 20) == 0
    assert shared(0.15).best_depth(0.7, 20) > 0


def test_a_quick_draft_misses_no_shared_forward():
    assert shared(0.04).best_depth(0.45, 20) in {1, 2}


def test_while_a_draft_waits_for_a_shared_forward_more_is_drafted():
    costs = shared(0.15)
    depth = costs.best_depth(0.8, 64)
    assert costs.deepest(depth, 64) == 6
    assert costs.marginal_s == 0
    assert costs.wait_s(6) == pytest.approx(1.0)
    assert costs.wait_s(7) == pytest.approx(2.0)


def test_a_replica_that_is_not_shared_does_not_limit_drafts():
    assert alone(0.15).deepest(3, 64) == 64
