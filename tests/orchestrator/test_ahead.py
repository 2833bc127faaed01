"""Whether to draft ahead of verifications that do not wait for drafts."""

from __future__ import annotations

import random

import pytest

from specmesh.decoding.predict.round_costs import RoundCosts
from specmesh.orchestrator.strategies.kit.ahead import ahead_rate, pays_ahead

COSTS = RoundCosts(0.1, 0.02, 0.02, alone_s=0.1)


@pytest.mark.parametrize("alpha", [0.0, 0.4, 0.8, 0.95])
@pytest.mark.parametrize("depth", [1, 4])
def test_the_rate_is_that_of_many_tokens(alpha, depth):
    dice, num_tokens, seconds, has_draft = random.Random(1), 0, 0.0, False
    while num_tokens < 200_000:
        num_accepted = 0
        while has_draft and num_accepted < depth and dice.random() < alpha:
            num_accepted += 1
        seconds += COSTS.verification_s(depth if has_draft else 0)
        num_tokens += num_accepted + 1
        all_right = num_accepted == (depth if has_draft else 0)
        has_draft = all_right and dice.random() < alpha
    assert ahead_rate(COSTS, alpha, depth) == pytest.approx(num_tokens / seconds, rel=0.02)


@pytest.mark.parametrize(
    ("costs", "alpha", "pays"),
    [
        (COSTS, 0.8, True),
        (COSTS, 0.1, False),
        (RoundCosts(0.1, 0.06, 0.0, alone_s=0.1), 0.9, False),  # it is always too late
        (RoundCosts(0.1, 0.02, 0.1, alone_s=0.1), 0.9, False),  # a token takes as much as another
        (RoundCosts(0.1, 0.02, 0.02, alone_s=0.1, saved_s=0.05), 0.8, False),
        (RoundCosts(0.1, 0.02, 0.02, alone_s=0.1, hop_s=0.07), 0.8, False),
        (RoundCosts(0.1, 0.0, 0.0, alone_s=0.1), 1.0, True),
    ],
)
def test_drafts_pay_where_enough_are_ready_and_right(costs, alpha, pays):
    assert pays_ahead(costs, alpha, 8) is pays


def test_drafts_of_which_none_may_be_verified_never_pay():
    assert not pays_ahead(COSTS, 0.9, 0)
    assert not pays_ahead(COSTS, 1.0, 0)
