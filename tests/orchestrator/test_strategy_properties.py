"""Any strategy, any schedule, any faults: the target's own answer, exactly once."""

from __future__ import annotations

import random
from collections.abc import Sequence
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.orchestrator.goals import CALIBRATED_TREES, GIVEN
from tests.orchestrator.world import Chances, Target, World, follow

from specmesh.decoding.acceptance import Verdict
from specmesh.decoding.drafting import Drawn, TopK
from specmesh.decoding.predict.closed_forms import expected_tokens
from specmesh.orchestrator.strategies import STRATEGIES
from specmesh.orchestrator.strategies.base import Goal
from specmesh.orchestrator.strategies.commands import StopReason, Verify
from specmesh.orchestrator.strategies.events import Capacity

VOCAB_SIZE = 50


class Hashes:
    """A target that is a hash of the text, and drafters that know it with some probability."""

    def __init__(self, seed: int, agreement: float, *, target: Target | None = None) -> None:
        self.target = target or (lambda tokens: random.Random(f"{seed} {tokens}").randrange(50))
        self._agreement = agreement
        self._dice = random.Random(seed)

    def guess(
        self,
        task: int,
        epoch: int,
        drafter: int,
        tokens: Sequence[int],
        num_choices: int,
        count: int,
    ) -> Drawn:
        right = self.target(list(tokens))
        wrong = (right + 1 + drafter) % VOCAB_SIZE
        best, other = right, wrong
        if self._dice.random() >= self._agreement:
            best, other = wrong, right
        known = (best, other, (right + 9) % VOCAB_SIZE)
        listed = known[:num_choices]
        sure = self._dice.choice([0.4, 0.6, 0.9])
        choices = TopK(listed, (sure, 0.09, 0.01)[:num_choices], 0.9)
        # One drafter of several may not say what it thinks.
        tells = listed and drafter < 2 and best % 7
        return Drawn(known[:count], None, choices if tells else None)

    def verdict(self, tokens: Sequence[int], command: Verify) -> Verdict:
        return follow(command.tree, tokens, self.target)


def target_only(target: Target, goal: Goal) -> tuple[list[int], StopReason]:
    tokens: list[int] = []
    while len(tokens) < goal.max_tokens:
        tokens.append(target(tokens))
        if tokens[-1] in goal.end_of_text_ids:
            return tokens, StopReason.END_OF_TEXT
        if tokens[-1] in goal.stop_token_ids:
            return tokens, StopReason.STOP
    return tokens, StopReason.LENGTH


GOALS = st.builds(
    Goal,
    max_tokens=st.integers(1, 40),
    end_of_text_ids=st.sampled_from([frozenset(), frozenset({3})]),
    stop_token_ids=st.sampled_from([frozenset(), frozenset({5, 6})]),
    calibrated_trees=st.sampled_from([(), CALIBRATED_TREES]),
    **GIVEN,
)
CAPACITIES = st.builds(
    Capacity,
    num_verifiers=st.integers(1, 5),
    drafters=st.sampled_from([(0,), (0, 1), (0, 1, 2)]),
    target_s=st.none() | st.floats(1e-3, 1),
    drafter_s=st.none() | st.floats(1e-6, 1),
    heads_s=st.none() | st.floats(1e-6, 1),
    heads_depth=st.sampled_from([0, 1, 4]),
)
CHANCES = st.builds(
    Chances,
    short_draft=st.sampled_from([0.0, 0.2, 1.0]),
    broken_draft=st.sampled_from([0.0, 0.2, 1.0]),
    replay=st.sampled_from([0.0, 0.5]),
    change=st.sampled_from([0.0, 0.0, 0.2]),
    broken_assessment=st.sampled_from([0.0, 0.3]),
    broken_check=st.sampled_from([0.0, 0.0, 0.1]),
    resumption=st.sampled_from([0.0, 0.0, 0.05]),
    chains_alone=st.sampled_from([0.0, 0.5, 1.0]),
)


@pytest.mark.parametrize("strategy", STRATEGIES)
@settings(max_examples=200)
@given(GOALS, st.integers(0, 2**32), st.sampled_from([0.0, 0.5, 0.9, 1.0]), CAPACITIES, CHANCES)
def test_every_strategy_says_what_the_target_alone_would(
    strategy, goal, seed, agreement, capacity, chances
):
    models = Hashes(seed, agreement)
    world = World(strategy, goal, models, random.Random(seed), capacity, chances)
    reason = world.run()
    assert (world.committed, reason) == target_only(models.target, goal)


@pytest.mark.parametrize(("alpha", "gamma"), [(0.0, 4), (0.5, 1), (0.7, 4), (0.9, 8), (1.0, 5)])
def test_tokens_a_round_match_the_closed_form(alpha, gamma):
    """Leviathan et al. 2023, Equation 1, for independent acceptance."""
    goal = Goal(max_tokens=4_000, lookahead=gamma)
    # A hash of the whole text would cost the square of its length.
    models = Hashes(7, alpha, target=lambda tokens: len(tokens) % VOCAB_SIZE)
    world = World("speculative", goal, models, random.Random(7), Capacity())
    world.run()
    # The last rounds are cut by max_tokens.
    sizes = [len(commit.token_ids) for commit in world.commits[: -gamma - 1]]
    # Five standard errors of a mean of values in [1, gamma + 1].
    bound = 5 * (gamma / 2) / len(sizes) ** 0.5
    assert fmean(sizes) == pytest.approx(expected_tokens(alpha, gamma), abs=bound)
