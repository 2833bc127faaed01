"""What the strategy `filter` says in rejection mode, in distribution: Algorithm 2's law.

A place that is kept says a draw from what the drafter draws from, any other one from the
target's distribution, and which it is follows from the tokens before. The drafter draws from
its warped distribution cut to the ``MAX_CANDIDATES`` likeliest tokens.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
import pytest
from tests.decoding.test_losslessness import NUM_TOKENS, PROMPT, exact_law, excess, table
from tests.orchestrator.test_strategy_rejection import Table, Tables, by_position, excess_at
from tests.orchestrator.world import Chances, Keeps, World

from specmesh.decoding.drafting import MAX_CANDIDATES, TopK, draw_children
from specmesh.decoding.sampling import AcceptanceMode, Distribution, Sampling, warp
from specmesh.orchestrator.strategies.base import Goal
from specmesh.orchestrator.strategies.events import Capacity
from specmesh.orchestrator.strategies.filter import NUM_CHOICES
from specmesh.orchestrator.strategies.kit.draft_noise import draft_sampling

REJECTION = Sampling(mode=AcceptanceMode.REJECTION)
Law = dict[tuple[int, ...], float]
Place = Callable[[tuple[int, ...]], Distribution]


def nothing(choices: TopK) -> bool:
    return False


def everything(choices: TopK) -> bool:
    return True


def the_sure(choices: TopK) -> bool:
    return choices.probabilities[0] > 0.6


def sample(
    target: Table, drafter: Table, keeps: Keeps, goal: Goal, chances: Chances, num_samples: int
) -> Counter[tuple[int, ...]]:
    """How often each text was said, over seeds."""
    counts: Counter[tuple[int, ...]] = Counter()
    for seed in range(num_samples):
        models = Tables(target, [drafter], seed, draft_sampling)
        rng = random.Random(f"schedule {seed}")
        world = World("filter", goal, models, rng, Capacity(), chances, keeps)
        world.run()
        counts[tuple(world.committed)] += 1
    return counts


def algorithm_2_law(target: Table, drafter: Table, keeps: Keeps, num_tokens: int) -> Law:
    """The probability of every text, enumerated token by token."""

    def place(tokens: tuple[int, ...]) -> Distribution:
        logits = drafter(tokens)
        drawn = draw_children(logits, REJECTION, 0, 1, NUM_CHOICES)
        assert drawn.choices is not None
        assert drawn.distribution is not None
        return drawn.distribution if keeps(drawn.choices) else warp(target(tokens), REJECTION)

    return enumerated(place, num_tokens)


def enumerated(place: Place, num_tokens: int) -> Law:
    law: Law = {(): 1.0}
    for _ in range(num_tokens):
        law = {
            (*tokens, token): probability * p
            for tokens, probability in law.items()
            for token, p in pairs(place((*PROMPT, *tokens)))
        }
    return law


def pairs(said: Distribution) -> Iterator[tuple[int, float]]:
    return zip(said.token_ids.tolist(), said.probabilities.tolist(), strict=True)


@pytest.mark.parametrize("lookahead", [None, 2])
@pytest.mark.parametrize("keeps", [nothing, the_sure, everything])
def test_text_has_the_law_of_algorithm_2(keeps: Keeps, lookahead: int | None):
    target, drafter = table(3, vocab_size=3), table(4, vocab_size=3)
    goal = Goal(NUM_TOKENS, lookahead=lookahead)
    chances = Chances(short_draft=0.2, replay=0.1)
    counts = sample(target, drafter, keeps, goal, chances, num_samples=1_200)
    assert excess(counts, algorithm_2_law(target, drafter, keeps, NUM_TOKENS)) < 1


def test_text_has_the_targets_law_where_nothing_is_kept_and_much_breaks():
    target, drafter = table(3, vocab_size=3), table(4, vocab_size=3)
    chances = Chances(short_draft=0.2, broken_draft=0.1, replay=0.1, broken_assessment=0.1)
    counts = sample(target, drafter, nothing, Goal(NUM_TOKENS), chances, num_samples=1_200)
    assert excess(counts, exact_law(target, Sampling())) < 1


TARGET, WRONG = by_position(0.5, 0.5, 0.5), by_position(0.85, 0.9, 0.9)
"""A drafter that is too sure of one token, so that its draft ends at the other one."""


def test_a_draft_that_ends_where_the_drafter_is_unsure_does_not_tip_the_scales():
    counts = sample(TARGET, WRONG, nothing, Goal(2), Chances(), num_samples=2_500)
    assert max(excess_at(position, counts, 0.5) for position in range(2)) < 1


def test_a_run_of_places_that_ends_before_a_kept_one_does_not_tip_the_scales():
    """The second place is kept after one token and not after the other, so that the token
    drawn at the first decides how many are in question."""
    rows = {None: [0.85, 0.15], 0: [0.5, 0.5], 1: [0.99, 0.01]}

    def drafter(tokens: tuple[int, ...]) -> np.ndarray:
        before = tokens[-1] if len(tokens) == len(PROMPT) + 1 else None
        return np.log(np.array(rows[before], dtype=np.float32))

    def keeps(choices: TopK) -> bool:
        return choices.probabilities[0] > 0.9

    goal = Goal(2, lookahead=2)
    counts = sample(TARGET, drafter, keeps, goal, Chances(), num_samples=2_500)
    assert excess_at(0, counts, 0.5) < 1


WIDE = 80
"""Tokens: more than a draft distribution holds."""


@cache
def wide_drafter(tokens: tuple[int, ...]) -> np.ndarray:
    """Eight tokens have about half of it, the others share what is left."""
    seeded = np.random.default_rng([9, *tokens])
    weights = seeded.uniform(0.9, 1.1, size=WIDE)
    weights[seeded.permutation(WIDE)[:8]] = 11
    return np.log(weights).astype(np.float32)


def test_kept_text_has_the_law_of_the_drafter_cut_to_its_likeliest_tokens():
    def cut(tokens: tuple[int, ...]) -> Distribution:
        warped = warp(wide_drafter(tokens), REJECTION)
        best = np.argsort(-warped.probabilities)[:MAX_CANDIDATES]
        kept = warped.probabilities[best]
        return Distribution(warped.token_ids[best], kept / kept.sum())

    law = enumerated(cut, 2)
    whole = enumerated(lambda tokens: warp(wide_drafter(tokens), REJECTION), 2)
    assert sum(p for text, p in whole.items() if text not in law) > 0.15
    counts = sample(TARGET, wide_drafter, everything, Goal(2), Chances(), num_samples=1_500)
    assert excess(counts, law) < 1
