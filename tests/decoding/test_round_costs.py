"""The depth of drafts that pays, from the times of a round."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from specmesh.decoding.predict.closed_forms import walltime_factor
from specmesh.decoding.predict.round_costs import PAYS, RoundCosts

RATES = st.floats(0, 1)


def alone(level_s: float, token_s: float = 0.0) -> RoundCosts:
    """The costs at a replica that the answer has to itself, whose verification takes a second."""
    return RoundCosts(1.0, level_s, token_s, alone_s=1.0)


def shared(level_s: float, token_s: float = 0.0) -> RoundCosts:
    """The costs at a replica that begins a forward every second, whoever is ready."""
    return RoundCosts(1.0, level_s, token_s, alone_s=1.0, period_s=1.0)


@given(RATES, st.floats(0, 2), st.integers(0, 30), st.sampled_from([1.0, PAYS]))
def test_the_best_depth_is_the_best_of_all_gammas_if_any_gains_enough(
    alpha, cost_ratio, limit, least_gain
):
    best = alone(cost_ratio).best_depth(alpha, limit, least_gain)
    assert 0 <= best <= limit
    factors = [walltime_factor(alpha, gamma, cost_ratio) for gamma in range(limit + 1)]
    if best:
        assert factors[best] >= max(factors) - 1e-12
    else:
        assert max(factors) <= least_gain + 1e-12


def test_drafting_pays_exactly_when_alpha_exceeds_the_cost():
    # Corollary 3.9 of Leviathan et al.
    assert alone(0.49).best_depth(0.5, 20) > 0
    assert alone(0.51).best_depth(0.5, 20) == 0
    assert alone(0.1, token_s=0.41).best_depth(0.5, 20) == 0


def test_a_draft_that_misses_a_shared_forward_must_make_up_for_all_of_it():
    """Two seconds instead of one are worth it if more than one draft token is accepted."""
    assert shared(0.4).best_depth(0.45, 20) == 0
    assert shared(0.4).best_depth(0.7, 20) > 0


def test_a_quick_draft_misses_no_shared_forward():
    assert shared(0.04).best_depth(0.45, 20) == alone(0.04).best_depth(0.45, 20)


def test_while_a_draft_waits_for_a_shared_forward_more_is_drafted():
    costs = shared(0.15)
    depth = costs.best_depth(0.8, 64)
    assert costs.deepest(depth, 64) == 6
    assert costs.marginal_s(depth) == 0
    assert costs.marginal_s(1) == 0.15
    assert costs.wait_s(6) == pytest.approx(1.0)
    assert costs.wait_s(7) == pytest.approx(2.0)


def test_a_replica_that_is_not_shared_does_not_limit_drafts():
    assert alone(0.15).deepest(3, 64) == 64


@example(alpha=1.0, token_s=0.998046875, first_s=1.0)
@given(
    alpha=st.floats(0.01, 1.0),
    token_s=st.floats(0.0, 1.0),
    first_s=st.floats(0.0, 3.0),
)
def test_a_draft_can_gain_if_the_best_one_that_takes_no_time_does(alpha, token_s, first_s):
    costs = RoundCosts(1.0, 0.0, token_s, alone_s=1.0, first_s=first_s)
    # Alpha 1 gains the slower, the more nearly a token takes as long as it saves.
    depths = np.arange(1, 20_000)
    tokens = 1.0 + np.cumsum(alpha**depths)
    best = (tokens / (1.0 + first_s + token_s * depths)).max()
    assume(abs(best - 1.0) > 2e-4)
    assert costs.can_gain(alpha) == (best > 1.0)


def test_a_dear_first_token_takes_a_longer_draft_to_pay():
    assert alone(0.02, token_s=0.05).best_depth(0.5, 20) > 0
    dear = replace(alone(0.02, token_s=0.05), first_s=0.5)
    assert dear.best_depth(0.5, 20) > alone(0.02, token_s=0.05).best_depth(0.5, 1)
    assert replace(dear, first_s=0.9).best_depth(0.5, 20) == 0


def test_a_draft_takes_no_time_while_others_keep_the_replica_busy():
    """Four answers wait for each other: only the time of forwards counts."""
    queued = RoundCosts(4.0, 0.5, 0.4, alone_s=4.0, num_waiting=4.0)
    assert queued.round_s(3) == pytest.approx(queued.verification_s(3))
    assert queued.marginal_s(3) == pytest.approx(0.4)
    slow = replace(queued, level_s=2.0)
    assert slow.round_s(3) == pytest.approx(slow.verification_s(3) / 4 + 6.0)
    assert slow.marginal_s(3) == pytest.approx(2.4)


def test_a_draft_that_is_late_waits_for_a_round_of_the_others():
    late = replace(shared(0.4), alone_s=1.25)
    assert late.wait_s(2) == pytest.approx(1.25)


def test_to_try_heads_delays_all_that_share_their_replica():
    costs = replace(shared(0.1, token_s=0.2), num_held=50.0)
    assert costs.explored_s() == pytest.approx(0.2 + 50 * 0.1)


def test_to_try_a_drafter_again_it_has_to_read_the_prefix():
    costs = RoundCosts(1.0, 0.1, 0.05, alone_s=1.0)
    reading = replace(costs, reading_s=3.0)
    assert reading.explored_s(2) == pytest.approx(costs.explored_s(2) + 3.0)
    assert reading.best_depth(0.9, 8) == costs.best_depth(0.9, 8)


def test_drafts_are_no_longer_than_what_is_known_to_pay():
    costs = replace(alone(0.01), most_tokens=3.0)
    assert costs.best_depth(0.95, 64) == 3
    assert costs.deepest(3, 64) == 3


def test_cheap_first_tokens_let_short_drafts_pay():
    dear = alone(0.01, token_s=0.8)
    assert dear.best_depth(0.6, 8) == 0
    assert replace(dear, first_s=-0.5).best_depth(0.6, 8) == 1
    assert replace(dear, first_s=-0.5).can_gain(0.6)
    assert not replace(dear, first_s=-0.1).can_gain(0.6)


@given(st.floats(0, 0.99), st.floats(0.001, 1), st.floats(0, 1))
def test_verifications_of_a_crowd_have_as_many_tokens_as_take_it_the_least_time(
    alpha, level_s, token_s
):
    def lost_s(num_tokens: float) -> float:
        return token_s / num_tokens + (1 - alpha) * num_tokens * level_s / 2

    lookahead = shared(level_s, token_s).shared_lookahead(alpha)
    assert lookahead <= 1 or lost_s(lookahead) <= lost_s(lookahead - 1)
    assert lost_s(lookahead + 1) <= lost_s(lookahead + 2) + 1e-9


def test_an_answer_that_has_its_replicas_to_itself_is_verified_as_soon_as_one_is_free():
    assert alone(0.01, token_s=0.5).shared_lookahead(0.9) == 0
