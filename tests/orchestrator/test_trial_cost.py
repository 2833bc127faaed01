"""What a draft costs that is made to see whether drafts pay again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specmesh.orchestrator.strategies.events import Capacity

ALONE = Capacity(target_s=0.02, drafter_s=0.001, target_decoding_s=0.019, hop_s=0.001)


def test_an_answer_alone_holds_up_nobody():
    assert ALONE.trial_cost == ALONE.draft_cost


def test_the_forwards_of_others_wait_for_both_calls():
    shared = replace(ALONE, period_s=0.02, num_sharing=5.0)
    assert shared.draft_cost == ALONE.draft_cost
    assert shared.trial_cost == pytest.approx(ALONE.draft_cost + 2 * 4 * 0.001 / 0.02)


def test_no_call_holds_up_others_for_longer_than_one_more_forward_takes():
    crowd = replace(ALONE, period_s=0.02, num_sharing=256.0)
    assert crowd.trial_cost == pytest.approx(ALONE.draft_cost + 2)


@pytest.mark.parametrize("heads", [False, True])
def test_rounds_that_explore_count_it_too(heads):
    shared = replace(ALONE, heads_s=0.001, heads_depth=4, num_sharing=5.0)
    costs, own = (
        each.heads_costs if heads else each.drafter_costs
        for each in (shared, replace(shared, hop_s=0.0))
    )
    assert costs.rejoining_s == pytest.approx(0.004)
    more_s = costs.round_s(2) - own.round_s(2)
    assert costs.explored_s(2) - own.explored_s(2) == pytest.approx(more_s + 2 * 0.004)


def test_the_cost_of_a_trial_is_unknown_as_long_as_that_of_a_draft():
    assert Capacity().trial_cost is None
    assert Capacity(target_s=0.0, drafter_s=0.001).trial_cost is None
