"""Trees as wide and as deep as pays."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.decoding.test_lookahead import decode as decode_chains

from specmesh.decoding.drafting import Drawn, TopK
from specmesh.decoding.predict.acceptance_rate import MeshAcceptance
from specmesh.decoding.predict.lookahead import MAX_LOOKAHEAD
from specmesh.decoding.predict.round_costs import RoundCosts
from specmesh.decoding.trees.growth import Guess, TreeGrowth, is_last, next_level
from specmesh.decoding.trees.plan import (
    DEFAULT_WIDTH,
    MAX_WIDTH,
    AdaptiveTree,
    Siblings,
    TreeOutcome,
)

TARGET_S = 10.0

Draw = Callable[[], tuple[float, ...]]
"""How likely each of the drafter's choices is right, which it says itself."""


def one_round(
    adaptive: AdaptiveTree, draw: Draw, rng: random.Random, times: tuple[float, ...]
) -> TreeOutcome:
    """Draft by the next plan and verify, in a world where a choice is right as often as is said.
    ``times`` are those of the target, a level, a token, and a sibling if that takes any."""
    target_s, level_s, token_s, *sibling_s = times
    costs = RoundCosts(target_s, level_s, token_s, alone_s=target_s)
    plan = adaptive.plan(replace(costs, sibling_s=sum(sibling_s)))
    siblings: list[Siblings] = []
    num_nodes = num_levels = 0
    tips = [(1.0, True)]
    while plan is not None and tips and num_levels < plan.depth:
        num_levels += 1
        said = [draw() for _ in tips]
        guesses = [
            Guess(
                chance, Drawn(tuple(range(len(each))), None, TopK(tuple(range(len(each))), each, 0))
            )
            for (chance, _), each in zip(tips, said, strict=True)
        ]
        growth = plan.growth or TreeGrowth(num_nodes + 1, 0.0)
        level = next_level(guesses, plan.stop, growth, num_nodes)
        grown = []
        for (_, on_path), each, children in zip(tips, said, level, strict=True):
            (right,) = rng.choices(range(len(each) + 1), [*each, 1 - sum(each)])
            num_nodes += len(children.token_ids)
            accepted = right if right < len(children.token_ids) else None
            if on_path and children.token_ids:
                siblings.append(Siblings(each[: len(children.token_ids)], accepted))
            grown += [
                (chance, on_path and rank == accepted)
                for rank, chance in enumerate(children.chances)
            ]
        tips = grown
        if plan.growth and is_last(level, plan.stop, plan.growth, num_nodes):
            break
    outcome = TreeOutcome(num_nodes, num_levels, tuple(siblings))
    adaptive.observe(outcome, plan)
    return outcome


def decode(
    draw: Draw,
    drafter_s: float,
    token_s: float,
    adaptive: AdaptiveTree,
    num_rounds: int,
    sibling_s: float = 0.0,
    *,
    siblings_are_measured: bool = True,
) -> tuple[float, float]:
    """Tokens per second, and the mean number of nodes."""
    rng, outcomes = random.Random(5), []
    seconds, target_s = 0.0, TARGET_S
    for _ in range(num_rounds):
        times = (target_s, drafter_s, token_s, sibling_s * siblings_are_measured)
        outcomes.append(one_round(adaptive, draw, rng, times))
        num_nodes = fmean(each.num_nodes for each in outcomes[-20:])
        target_s = TARGET_S + token_s * num_nodes  # as an orchestrator measures it
        latest = outcomes[-1]
        seconds += TARGET_S + token_s * latest.num_nodes + drafter_s * latest.num_levels
        seconds += sibling_s * (latest.num_nodes - latest.num_levels)
    tokens = sum(each.num_accepted + 1 for each in outcomes)
    return tokens / seconds, fmean(each.num_nodes for each in outcomes)


def choices(seed: int, *said: tuple[float, ...]) -> Draw:
    rng = random.Random(seed)
    return lambda: rng.choice(said)


UNSURE = ((0.5, 0.2, 0.1), (0.9, 0.06, 0.01), (0.35, 0.3, 0.2))


def chain_speed(draw: Draw, drafter_s: float, token_s: float) -> float:
    rng = random.Random(6)

    def first() -> tuple[float, bool]:
        sure = draw()[0]
        return sure, rng.random() < sure

    return decode_chains(first, drafter_s, 2_000, token_s)


@pytest.mark.parametrize("drafter_s", [0.3, 1.0, 3.0])
def test_where_tokens_cost_nothing_trees_beat_chains(drafter_s):
    speed, num_nodes = decode(choices(1, *UNSURE), drafter_s, 0.0, AdaptiveTree(), 2_000)
    assert speed > 1.15 * chain_speed(choices(2, *UNSURE), drafter_s, 0.0)
    assert num_nodes <= DEFAULT_WIDTH


@pytest.mark.parametrize("token_s", [0.2, 1.0, 2.5])
@pytest.mark.parametrize("drafter_s", [0.5, 2.0])
def test_whatever_tokens_cost_trees_are_hardly_slower_than_chains(drafter_s, token_s):
    speed, _ = decode(choices(1, *UNSURE), drafter_s, token_s, AdaptiveTree(), 2_000)
    assert speed > 0.97 * chain_speed(choices(2, *UNSURE), drafter_s, token_s)


def test_dearer_tokens_make_narrower_trees():
    widths = [
        decode(choices(1, *UNSURE), 0.5, token_s, AdaptiveTree(), 600)[1]
        for token_s in (0.0, 0.3, 1.0, 2.5)
    ]
    assert widths == sorted(widths, reverse=True)
    assert widths[0] > 3 * widths[-1]


def test_another_answer_knows_how_wide_the_levels_were_that_were_right_so_often():
    everyone = MeshAcceptance()
    for _ in range(4):
        adaptive = AdaptiveTree(acceptance=everyone.rate("trees"))
        for number in range(100):
            siblings = Siblings((0.35, 0.35), 0 if number % 10 < 7 else None)
            adaptive.observe(TreeOutcome(2, 1, (siblings,)))
    assert everyone.rate("trees").width == pytest.approx(2, abs=0.05)
    plan = AdaptiveTree(acceptance=everyone.rate("trees")).plan(
        RoundCosts(TARGET_S, 1.5, 3.2, alone_s=TARGET_S)
    )
    assert plan is None


@pytest.mark.parametrize(("num_nodes", "drafts"), [(1, True), (2, False)])
def test_the_depth_counts_all_tokens_of_levels_that_are_right_since_they_are_wide(
    num_nodes, drafts
):
    """With 0.7 accepted, a level pays if it takes one token to verify, and not if it takes two."""
    adaptive = AdaptiveTree()
    for number in range(400):
        siblings = Siblings((0.35,) * num_nodes, 0 if number % 10 < 7 else None)
        adaptive.observe(TreeOutcome(num_nodes, 1, (siblings,)))
    plan = adaptive.plan(RoundCosts(TARGET_S, 1.5, 3.2, alone_s=TARGET_S))
    assert (plan is not None and not plan.trial) is drafts


def test_siblings_that_take_time_to_draft_must_be_worth_it():
    """On two cores a head's level takes 0.8 ms and each of its tokens 0.7."""
    speeds = [
        decode(*(choices(1, *UNSURE), 0.6, 0.4, AdaptiveTree(), 2_000, 0.8), **measured)[0]
        for measured in ({"siblings_are_measured": True}, {"siblings_are_measured": False})
    ]
    assert speeds[0] > 1.04 * speeds[1]


@pytest.mark.parametrize("said", [(0.3, 0.1), (0.02, 0.01)])
def test_where_drafting_does_not_pay_the_target_works_alone(said):
    speed, _ = decode(choices(1, said), 9.0, 1.0, AdaptiveTree(), 1_000)
    assert speed > 0.97 / TARGET_S


def test_a_drafter_without_second_choices_gets_the_trees_of_chains():
    speed, _ = decode(choices(1, (0.8,)), 1.0, 0.2, AdaptiveTree(), 2_000)
    assert speed > 0.97 * chain_speed(choices(2, (0.8,)), 1.0, 0.2)


@pytest.mark.parametrize("width", [2, 8, 32])
def test_trees_fill_the_width_that_a_request_sets_whatever_a_token_costs(width):
    adaptive = AdaptiveTree(width=width)
    decode(choices(1, *UNSURE), 0.2, 3.0, adaptive, 300)
    rng, times = random.Random(7), (TARGET_S, 0.2, 3.0)
    later = [one_round(adaptive, choices(3, *UNSURE), rng, times) for _ in range(200)]
    sizes = [each.num_nodes for each in later]
    assert max(sizes) == width
    assert fmean(sizes) > 0.6 * width


def test_a_lookahead_is_drafted_to_its_depth_whatever_it_costs():
    adaptive = AdaptiveTree(lookahead=3)
    for _ in range(50):
        adaptive.observe(TreeOutcome(1, 1, (Siblings((0.9,), None),)))
    plan = adaptive.plan(RoundCosts(1.0, 50.0, 0.1, alone_s=1.0))
    assert plan is not None
    assert (plan.depth, plan.stop.below) == (3, 0.0)


def test_a_good_drafter_pays_for_its_own_trials_after_a_bad_time():
    adaptive = AdaptiveTree()
    for _ in range(300):
        adaptive.observe(TreeOutcome(1, 1, (Siblings((0.9,), None),)))
    speed, _ = decode(choices(1, (0.9, 0.05)), 1.0, 0.1, adaptive, 1_500)
    assert speed > 2 / TARGET_S


def never_right(mesh: MeshAcceptance) -> AdaptiveTree:
    """The trees of an answer that follows others, whose drafts have been wrong."""
    AdaptiveTree(acceptance=mesh.rate()).observe(
        TreeOutcome(1_000, 1_000, (Siblings((0.9,), None),) * 1_000)
    )
    return AdaptiveTree(acceptance=mesh.rate())


@pytest.mark.parametrize(
    ("level_s", "most_tokens", "depth"), [(0.5, 99.0, 4), (3.0, 99.0, 3), (0.5, 2.0, 2), (20, 9, 1)]
)
def test_a_trial_is_a_chain_of_several_tokens_if_they_take_no_longer_than_one_of_the_target(
    level_s, most_tokens, depth
):
    """The first alone does not tell what each further one takes."""
    adaptive = never_right(MeshAcceptance())
    costs = RoundCosts(10.0, level_s, 3.0, alone_s=10.0, most_tokens=most_tokens)
    plans = [adaptive.plan(costs) for _ in range(1_000)]
    trials = [plan for plan in plans if plan is not None]
    assert {(plan.depth, plan.growth, plan.trial) for plan in trials} == {(depth, None, True)}
    spent = len(trials) * costs.explored_s(depth)
    assert 0.5 * 1_000 * 10.0 < 100 * spent <= 1_000 * 10.0


def test_short_answers_explore_together():
    mesh, costs, num_trials = MeshAcceptance(), RoundCosts(10.0, 0.5, 3.0, alone_s=10.0), 0
    for _ in range(100):
        adaptive = never_right(mesh)
        num_trials += sum(adaptive.plan(costs) is not None for _ in range(10))
    assert num_trials == pytest.approx(1_000 * 0.01 * 10.0 / costs.explored_s(4), abs=1)


def test_a_drafter_that_turns_bad_is_not_tried_on_what_it_has_earned():
    mesh, costs = MeshAcceptance(), RoundCosts(10.0, 0.5, 3.0, alone_s=10.0)
    adaptive = never_right(mesh)
    adaptive._acceptance.exploration.won(1_000)
    num_trials = sum(adaptive.plan(costs) is not None for _ in range(100))
    assert num_trials <= (4 + 1) * 10.0 / costs.explored_s(4)


outcomes = st.builds(
    lambda said: TreeOutcome(
        sum(len(each) for each, _ in said),
        len(said),
        tuple(
            Siblings(tuple(each), taken if taken is not None and taken < len(each) else None)
            for each, taken in said
        ),
    ),
    st.lists(
        st.tuples(st.lists(st.floats(0, 1), min_size=1, max_size=5), st.none() | st.integers(0, 5)),
        max_size=9,
    ),
)


@given(
    st.lists(outcomes, max_size=20),
    st.none() | st.integers(1, MAX_LOOKAHEAD),
    st.none() | st.integers(1, MAX_WIDTH),
    st.none() | st.builds(RoundCosts, *[st.floats(0, 1e3)] * 4),
)
def test_whatever_happens_a_plan_can_be_sent(rounds, lookahead, width, costs):
    adaptive = AdaptiveTree(lookahead, width)
    for each in rounds:
        adaptive.observe(each)
    plan = adaptive.plan(costs)
    if plan is not None:
        assert 1 <= plan.depth <= MAX_LOOKAHEAD
        if plan.growth is not None:
            assert 1 <= plan.growth.max_nodes <= (width or DEFAULT_WIDTH)
            assert 0 <= plan.growth.least_worth <= 1
        assert 0 <= plan.stop.below <= 1
    assert plan is not None or not lookahead


def test_a_tree_is_no_larger_than_what_is_known_to_pay_unless_a_request_asks_for_more():
    costs = RoundCosts(10.0, 0.01, 0.0, alone_s=10.0, most_tokens=3.0)
    assert AdaptiveTree().plan(costs).growth.max_nodes == 3
    assert AdaptiveTree(width=9).plan(costs).growth.max_nodes == 9
    assert AdaptiveTree(lookahead=5).plan(costs).growth.max_nodes == DEFAULT_WIDTH


def test_trees_for_which_others_wait_are_as_deep_as_suits_everyone():
    """Heads draft for all answers together, and the deepest tree holds up all of them."""
    mesh, depths = MeshAcceptance(), []
    for num_held in (1.0, 32.0):
        costs = RoundCosts(10.0, 3.0, 0.0, alone_s=10.0, num_held=num_held)
        answers = [mesh.rate(), MeshAcceptance(mesh).rate()]  # the second may change its strategy
        for accepted, acceptance in zip((True, False), answers, strict=True):
            acceptance.learn([accepted] * 100)
        mesh.rate().learn([n % 5 > 0 for n in range(400)])
        plans = [AdaptiveTree(acceptance=each).plan(costs) for each in answers]
        depths.append([plan.depth if plan else 0 for plan in plans])
    assert depths == [[4, 0], [2, 2]]
