"""The strategy `filter`: Algorithm 2's text whatever the schedule, and no token let pass unseen."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.orchestrator.test_strategy_properties import CHANCES, GOALS, Hashes, target_only
from tests.orchestrator.world import Chances, World

from specmesh.decoding.acceptance import Verdict
from specmesh.decoding.drafting import TopK
from specmesh.orchestrator.strategies.base import Goal
from specmesh.orchestrator.strategies.commands import (
    Assess,
    Commit,
    Draft,
    GiveUp,
    StopReason,
    Verify,
)
from specmesh.orchestrator.strategies.events import (
    Assessed,
    Capacity,
    Drafted,
    Failed,
    Released,
    Verified,
)
from specmesh.orchestrator.strategies.filter import ConfidenceFilter

NEVER_BROKEN = Chances()


class Unsure(Hashes):
    """A drafter whose token and confidence are functions of the text, as a model's are."""

    def guess(self, task, epoch, drafter, tokens, num_choices, count):
        self._dice = random.Random(f"{tokens}")
        drawn = super().guess(task, epoch, drafter, tokens, num_choices, count)
        sure = self._dice.random()
        return replace(drawn, choices=TopK(drawn.children[:1], (sure,), 0.0))


def algorithm_2(models: Unsure, goal: Goal, threshold: float) -> tuple[list[int], StopReason]:
    """One token at a time (CALID, Algorithm 2), with its place among those not checked."""

    def say(tokens):
        drawn = models.guess(0, 1, 0, tokens, 2, 1)
        sure = drawn.choices.probabilities[0]
        return drawn.children[0] if sure > threshold else models.target(tokens)

    return target_only(say, goal)


@settings(max_examples=300)
@given(
    GOALS,
    st.integers(0, 2**32),
    st.sampled_from([0.0, 0.5, 0.9, 1.0]),
    st.sampled_from([0.0, 0.3, 0.6, 1.0]),
    st.sampled_from([0.0, 0.2]),
)
def test_filter_says_what_algorithm_2_says_one_token_at_a_time(
    goal, seed, agreement, threshold, short_draft
):
    models = Unsure(seed, agreement)
    world = World(
        "filter",
        goal,
        models,
        random.Random(seed),
        Capacity(),
        Chances(short_draft=short_draft, replay=0.3),
        keeps=lambda choices: choices.probabilities[0] > threshold,
    )
    assert (world.run(), world.committed)[::-1] == algorithm_2(models, goal, threshold)


@settings(max_examples=200)
@given(GOALS, st.integers(0, 2**32), CHANCES)
def test_only_what_was_assessed_and_kept_is_committed_unchecked(goal, seed, chances):
    models = Unsure(seed, 0.7)
    kept: list[TopK] = []

    def keeps(choices: TopK) -> bool:
        if choices.probabilities[0] > 0.5:
            kept.append(choices)
        return choices.probabilities[0] > 0.5

    world = World("filter", goal, models, random.Random(seed), Capacity(), chances, keeps)
    world.run()
    sure = {choices.token_ids[0] for choices in kept}
    text: list[int] = []
    for commit in world.commits:
        for token in commit.token_ids:
            if commit.checked:
                assert token == models.target(text)
            else:
                assert token in sure
            text.append(token)


def drafted(draft: Draft, *tokens: int) -> Drafted:
    choices = {n: TopK((token,), (0.5,), 1.0) for n, token in enumerate(tokens)}
    return Drafted(draft.task, tokens, tuple(range(len(tokens))), {}, True, choices)


def begun(*tokens: int) -> tuple[ConfidenceFilter, Assess]:
    strategy = ConfidenceFilter(Goal(max_tokens=20, lookahead=4))
    (draft,) = strategy.start(Capacity())
    (assess,) = strategy.handle(drafted(draft, *tokens))
    return strategy, assess


def test_kept_tokens_leave_before_the_target_is_asked():
    strategy, assess = begun(1, 2, 3, 4)
    (commit,) = strategy.handle(Assessed(assess.task, (True, False, False, True)))
    assert commit == Commit((1,), 0, checked=False)
    (verify,) = strategy.handle(Released(assess.task))
    # The last of the unsure places takes whatever the target says: it needs no guess.
    assert isinstance(verify, Verify)
    assert verify.tree.token_ids == (2,)


@pytest.mark.parametrize("answered", [False, True])
def test_failed_assessment_asks_the_target_about_all_that_is_left(answered):
    strategy, assess = begun(1, 2, 3, 4)
    if answered:
        strategy.handle(Assessed(assess.task, (False, True, True, True)))
    (verify,) = strategy.handle(Failed(assess.task))
    assert verify.tree.token_ids == (() if answered else (1, 2, 3))


def test_draft_without_a_guess_asks_the_target():
    strategy = ConfidenceFilter(Goal(max_tokens=20))
    (draft,) = strategy.start(Capacity())
    (verify,) = strategy.handle(drafted(draft))
    assert verify.tree.token_ids == ()
    assert strategy.handle(Failed(verify.task)) == [GiveUp(verify.task)]


def a_round(strategy: ConfidenceFilter, draft: Draft, *, keep: bool) -> Draft:
    """One draft of one token: kept, or refused by the target. Returns the next draft."""
    (assess,) = strategy.handle(drafted(draft, 7))
    commands = strategy.handle(Assessed(assess.task, (keep,)))
    if not keep:
        (verify,) = strategy.handle(Released(assess.task))
        commands = strategy.handle(Verified(verify.task, Verdict((), 8, recovered=False)))
    return commands[-1]


@pytest.mark.parametrize("keep", [True, False])
def test_draft_goes_on_for_as_long_as_tokens_of_its_confidence_are_said(keep):
    strategy = ConfidenceFilter(Goal(max_tokens=50))
    (draft,) = strategy.start(Capacity())
    chances = [draft.stop.acceptance(0.5)]
    for _ in range(8):
        draft = a_round(strategy, draft, keep=keep)
        chances.append(draft.stop.acceptance(0.5))
    assert draft.depth > 8
    assert chances == sorted(chances, reverse=not keep)
    assert (chances[-1] ** 3 > draft.stop.below) == keep  # three such tokens are drafted or not


def test_lookahead_asked_for_is_drafted_whole():
    (draft,) = ConfidenceFilter(Goal(max_tokens=50, lookahead=4)).start(Capacity())
    assert (draft.depth, draft.stop) == (4, None)
