"""Drafts that end where going on doesn't pay."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specmesh.decoding.predict.acceptance_rate import MeshAcceptance
from specmesh.decoding.predict.closed_forms import (
    expected_tokens,
    speculative_throughput,
)
from specmesh.decoding.predict.lookahead import (
    DEFAULT_LOOKAHEAD,
    MAX_LOOKAHEAD,
    AdaptiveLookahead,
)
from specmesh.decoding.predict.predictors import DraftOutcome
from specmesh.decoding.predict.round_costs import RoundCosts

TARGET_S = 10.0


def costs(drafter_s: float, token_s: float = 0.0) -> RoundCosts:
    return RoundCosts(TARGET_S, drafter_s, token_s, alone_s=TARGET_S)


Draw = Callable[[], tuple[float, bool]]
"""The drafter's confidence in the next token, and whether the target agrees."""


def decode(
    draw: Draw,
    drafter_s: float,
    num_rounds: int,
    token_s: float = 0.0,
    lookahead: AdaptiveLookahead | None = None,
) -> float:
    """Tokens per second, in a world where every time is known."""
    lookahead, tokens, seconds = lookahead or AdaptiveLookahead(), 0, 0.0
    for _ in range(num_rounds):
        plan = lookahead.plan(costs(drafter_s, token_s))
        drafted: list[tuple[float, bool]] = []
        reached = 1.0
        while len(drafted) < plan.depth:
            drafted.append(draw())
            if plan.stop is not None:
                reached *= plan.stop.acceptance(drafted[-1][0])
                if reached < plan.stop.below:
                    break
        accepted = next((n for n, (_, right) in enumerate(drafted) if not right), len(drafted))
        lookahead.observe(DraftOutcome(accepted, tuple(sure for sure, _ in drafted)))
        tokens += accepted + 1
        seconds += TARGET_S + len(drafted) * (drafter_s + token_s)
    return tokens / seconds


def sure_now_and_then(rng: random.Random) -> Draw:
    """A drafter that knows which half of its tokens are mostly right."""

    def draw() -> tuple[float, bool]:
        sure = rng.choice([0.4, 0.98])
        return sure, rng.random() < sure

    return draw


@pytest.mark.parametrize("alpha", [0.3, 0.6, 0.8, 0.9])
@pytest.mark.parametrize("drafter_s", [0.5, 1.0, 4.0])
@pytest.mark.parametrize("confidence", [None, 1.0], ids=["honest", "always sure"])
def test_drafter_that_is_never_surer_gets_the_best_fixed_length(alpha, drafter_s, confidence):
    rng = random.Random(1)

    def draw() -> tuple[float, bool]:
        return confidence or alpha, rng.random() < alpha

    gamma = costs(drafter_s).best_depth(alpha, MAX_LOOKAHEAD)
    best = speculative_throughput(TARGET_S, drafter_s, gamma, alpha)
    assert decode(draw, drafter_s, num_rounds=4_000) > 0.96 * best


@pytest.mark.parametrize("drafter_s", [0.5, 1.0, 2.0, 4.0])
@pytest.mark.parametrize("token_s", [0.0, 0.5])
def test_drafter_that_knows_when_it_is_right_is_followed_further_then(drafter_s, token_s):
    draw = sure_now_and_then(random.Random(2))
    best = max(
        expected_tokens((0.4 + 0.98) / 2, gamma) / (TARGET_S + gamma * (drafter_s + token_s))
        for gamma in range(1, 20)
    )
    assert decode(draw, drafter_s, 4_000, token_s) > 1.02 * best


def test_a_few_of_a_crowd_measure_a_mesh_that_has_just_started():
    everyone = MeshAcceptance()
    crowd = [AdaptiveLookahead(everyone.rate()) for _ in range(64)]
    assert [each.plan(None).depth for each in crowd] == [1] * 4 + [0] * 60
    # They go on: a first draft reads the prompt, and does not tell what a token takes.
    following = [each.plan(None).depth for each in crowd]
    assert following[:4] == [1] * 4
    assert sum(following) <= 5


def test_a_mesh_that_stays_unmeasured_is_tried_again_from_time_to_time():
    everyone = MeshAcceptance()
    tries = [AdaptiveLookahead(everyone.rate()).plan(None).depth for _ in range(1_000)]
    assert sum(tries) == pytest.approx(14, abs=1)


def test_answers_that_share_forwards_decide_alike_whether_to_draft():
    own, everyone = costs(4.0), MeshAcceptance()
    crowd = [AdaptiveLookahead(everyone.rate()) for _ in range(16)]
    odd = crowd[0]
    for _ in range(16):
        for each in crowd:
            each.observe(DraftOutcome(int(each is odd), (0.7,)))
    assert odd.plan(own).depth
    assert not crowd[1].plan(own).depth
    shared = replace(own, period_s=TARGET_S)
    assert not any(each.plan(shared).depth for each in crowd)


def test_dearer_tokens_end_drafts_sooner():
    plans = [AdaptiveLookahead().plan(costs(*each)) for each in ((1, 0), (2, 0), (2, 1))]
    below = [plan.stop.below for plan in plans]
    assert below == sorted(set(below))


@pytest.mark.parametrize(("alpha", "drafter_s"), [(0.3, 9.0), (0.0, 1.0), (0.1, 4.0), (0.9, 20.0)])
def test_where_drafting_does_not_pay_the_target_works_alone(alpha, drafter_s):
    rng = random.Random(3)
    speed = decode(lambda: (alpha, rng.random() < alpha), drafter_s, num_rounds=1_000)
    assert speed > 0.97 / TARGET_S


@pytest.mark.parametrize("drafter_s", [1.0, 5.0])
def test_drafting_goes_on_once_it_pays_again(drafter_s):
    """A drafter that is never right for a while, and then hardly ever wrong."""
    rng, lookahead = random.Random(4), AdaptiveLookahead()
    decode(lambda: (0.9, False), drafter_s, 300, lookahead=lookahead)
    speed = decode(
        lambda: (0.9, rng.random() < 0.95), drafter_s, num_rounds=600, lookahead=lookahead
    )
    gamma = costs(drafter_s).best_depth(0.95, MAX_LOOKAHEAD)
    assert speed > 0.8 * speculative_throughput(TARGET_S, drafter_s, gamma, 0.95)


@given(
    st.lists(st.tuples(st.lists(st.floats(0, 1), max_size=9), st.integers(0, 9))),
    st.none() | st.builds(RoundCosts, *[st.floats(0, 1e3)] * 4),
)
def test_whatever_happens_a_plan_can_be_sent(rounds, costs):
    lookahead = AdaptiveLookahead()
    for confidences, accepted in rounds:
        lookahead.observe(DraftOutcome(min(accepted, len(confidences)), tuple(confidences)))
    plan = lookahead.plan(costs)
    assert 0 <= plan.depth <= MAX_LOOKAHEAD
    assert plan.stop is None or 0 <= plan.stop.below <= 1


def test_drafts_are_let_grow_only_as_whole_ones_are_accepted():
    lookahead = AdaptiveLookahead()
    sure = (1.0,) * DEFAULT_LOOKAHEAD

    def depth() -> int:
        return lookahead.plan(costs(0.1)).depth

    lookahead.observe(DraftOutcome(DEFAULT_LOOKAHEAD - 1, sure))
    assert depth() == DEFAULT_LOOKAHEAD
    lookahead.observe(DraftOutcome(DEFAULT_LOOKAHEAD, sure))
    assert depth() == 2 * DEFAULT_LOOKAHEAD
    for _ in range(9):
        lookahead.observe(DraftOutcome(depth(), (1.0,) * depth()))
    assert depth() == MAX_LOOKAHEAD
