"""Rejection mode keeps the target's distribution under the strategies that work ahead.

Why it is exact: the token committed at position i is a function of the tokens before it and
of noise at i that nothing before has used. What could break that is a choice: between
several verdicts for i, or of whether i is reached by a draft token or by a bonus token. Such
a choice must not depend on that noise.

DSI: the first verdict to speak decides a position. Which checks are under way follows from
time, from what is committed and from how far chains have grown, never from the tokens that
chains hold beyond the committed ones; those a check hangs from only decide whether it is
thrown away, and by then they are committed. Hence a chain may not do without a check because
another drafter's chain happens to be equal.

Adaptive lookahead: whether a position is drafted depends on how sure the drafter was of the
tokens before it, which the text holds if it reaches that position, and on what verdicts on
committed tokens have taught. A token that was drawn is always verified: to leave one out
because the drafter is unsure of it would let its noise choose.

A bonus token's place, where a strategy drafts on meanwhile: whether a draft token is there when
the verdict comes follows from the same, and so does whose it is: those of all drafters whose
chains stand are tried in turn. Then the rule itself keeps the law (``decoding/bonus.py``).
Without one the target's own draw stands; it was never looked at before.

Branch prediction: a right branch is drafted from at the same place as a wrong one, but a
right one may have grown longer by then, so it decides which later positions are reached by
draft tokens. Whether there was a branch for the outcome depends on all tokens of the run,
also on those after the rejected one, which were drawn for those very positions. Hence every
draft task draws with noise of its own (``draft_sampling``); the target's own noise at those
positions has told nothing yet.

Heads and a drafter: the children of a node come from one source, and which one follows from the
tokens before them (``decoding/trees/merge.py``).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.decoding.test_losslessness import NUM_TOKENS, PROMPT, exact_law, excess, score, table
from tests.orchestrator.goals import CALIBRATED_TREES, draw_options
from tests.orchestrator.world import Chances, World

from specmesh.decoding.acceptance import Verdict, verify
from specmesh.decoding.drafting import Drawn, draw_children
from specmesh.decoding.predict.acceptance_rate import MeshAcceptance
from specmesh.decoding.predict.predictors import PREDICTORS, AlwaysAll, AlwaysNone
from specmesh.decoding.sampling import AcceptanceMode, Distribution, Sampling
from specmesh.decoding.trees.tree import TokenTree
from specmesh.orchestrator.strategies import LOSSLESS
from specmesh.orchestrator.strategies.base import Goal
from specmesh.orchestrator.strategies.chains.chain import Chain
from specmesh.orchestrator.strategies.chains.verifications import Verifications
from specmesh.orchestrator.strategies.commands import Verify
from specmesh.orchestrator.strategies.events import Capacity
from specmesh.orchestrator.strategies.kit.draft_noise import draft_sampling
from specmesh.orchestrator.strategies.kit.draft_tree import DraftTree
from specmesh.orchestrator.strategies.kit.growing_tree import GrowingTree

NUM_CANDIDATES = 2
"""Of bonus distributions, so that they have a tail."""

Table = Callable[[tuple[int, ...]], NDArray[np.floating[Any]]]
DraftSampling = Callable[[Sampling, int, int], Sampling]


class Tables:
    """Models that are tables of logits, sampled and accepted as the services do."""

    def __init__(
        self, target: Table, drafters: Sequence[Table], seed: int, draft_with: DraftSampling
    ) -> None:
        self._target = target
        self._drafters = drafters
        self._sampling = Sampling(seed=seed, mode=AcceptanceMode.REJECTION)
        self._draft_with = draft_with

    def guess(
        self,
        task: int,
        epoch: int,
        drafter: int,
        tokens: Sequence[int],
        num_choices: int,
        count: int,
    ) -> Drawn:
        prefix = (*PROMPT, *tokens)
        sampling = self._draft_with(self._sampling, task, epoch)
        logits = self._drafters[drafter % len(self._drafters)](prefix)
        return draw_children(logits, sampling, len(prefix), count, num_choices)

    def verdict(self, tokens: Sequence[int], command: Verify) -> Verdict:
        prefix = (*PROMPT, *tokens)
        logits = score(self._target, prefix, command.tree)
        num_candidates = NUM_CANDIDATES if command.drafting_on else 0
        return verify(
            *(command.tree, logits, self._sampling, len(prefix), command.distributions),
            num_bonus_candidates=num_candidates,
        )


Scene = tuple[Goal, Capacity, Chances]
Models = tuple[Table, Sequence[Table]]


def sample(
    strategy: str,
    scene: Scene | Callable[[random.Random], Scene],
    models: Models,
    num_samples: int,
    draft_with: DraftSampling = draft_sampling,
) -> Counter[tuple[int, ...]]:
    """How often each text was said, over seeds; the schedule knows nothing of the noise."""
    counts: Counter[tuple[int, ...]] = Counter()
    for seed in range(num_samples):
        tables = Tables(*models, seed, draft_with)
        rng = random.Random(f"schedule {seed}")
        goal, capacity, chances = scene(rng) if callable(scene) else scene
        # Each meets a mesh that has just started, so that none is the fifth to measure it.
        goal = replace(goal, acceptance=MeshAcceptance())
        world = World(strategy, goal, tables, rng, capacity, chances)
        world.run()
        counts[tuple(world.committed)] += 1
    return counts


TARGET, DRAFTERS = table(3, vocab_size=3), [table(4, vocab_size=3), table(5, vocab_size=3)]


def any_scene(rng: random.Random) -> Scene:
    """Whatever a request may ask for, and whatever may happen to it."""
    rates = [0.0, 0.0, 0.1, 0.3]
    latencies = [None, 0.001, 0.01, 0.1]
    trees = rng.choice([(), CALIBRATED_TREES])
    goal = Goal(NUM_TOKENS, calibrated_trees=trees, **draw_options(rng))
    capacity = Capacity(
        num_verifiers=rng.randint(1, 4),
        drafters=tuple(range(rng.randint(1, 2))),
        target_s=rng.choice(latencies),
        drafter_s=rng.choice(latencies),
        target_token_s=rng.choice([0.0, 0.0, 0.001]),
    )
    capacity = replace(capacity, heads_s=capacity.drafter_s, heads_depth=rng.choice([0, 2, 5]))
    chances = Chances(
        short_draft=rng.choice(rates),
        broken_draft=rng.choice(rates),
        replay=rng.choice(rates),
        change=rng.choice(rates),
        quick_draft=rng.choice([0.0, 0.5, 0.9]),
        broken_check=rng.choice(rates),
        resumption=rng.choice(rates),
        chains_alone=rng.choice([0.0, 0.5, 1.0]),
    )
    return goal, capacity, chances


@pytest.mark.parametrize("strategy", LOSSLESS)
def test_every_lossless_strategy_keeps_the_law_whatever_happens(strategy):
    counts = sample(strategy, any_scene, (TARGET, DRAFTERS), num_samples=2_000)
    assert excess(counts, exact_law(TARGET, Sampling())) < 1


def by_position(*probabilities: float) -> Table:
    """A model of two tokens that looks at nothing but the position: P(token 0) of the answer's."""
    rows = [np.log(np.array([p, 1 - p], dtype=np.float32)) for p in probabilities]
    return lambda tokens: rows[min(len(tokens) - len(PROMPT), len(rows) - 1)]


def excess_at(position: int, counts: Counter[tuple[int, ...]], probability: float) -> float:
    """``excess`` of the token at one position."""
    seen: Counter[tuple[int, ...]] = Counter()
    for text, count in counts.items():
        seen[text[position : position + 1]] += count
    return excess(seen, {(0,): probability, (1,): 1 - probability})


def sample_two_drafters() -> Counter[tuple[int, ...]]:
    """The first always stands and the second hardly; mostly the first is verified first."""
    drafters = [by_position(0.5), by_position(0.99)]
    capacity = Capacity(num_verifiers=8, drafters=(0, 1))
    chances = Chances(quick_draft=1.0)
    models = (by_position(0.5), drafters)
    return sample("dsi", (Goal(2, lookahead=1), capacity, chances), models, num_samples=1_500)


def test_two_drafters_that_agree_by_chance_do_not_tip_the_scales():
    assert excess_at(0, sample_two_drafters(), 0.5) < 1


def test_a_check_shared_by_two_drafters_would_be_seen(monkeypatch):
    def shared(self: Verifications, chain: Chain, position: int) -> int:
        return verified_up_to(self, replace(chain, distributions={}), position)

    verified_up_to = Verifications.verified_up_to
    monkeypatch.setattr(Verifications, "verified_up_to", shared)
    assert excess_at(0, sample_two_drafters(), 0.5) > 1


class Picky(AlwaysAll):
    """Expects the first of the second run to be rejected if the third looks unlikely, and from
    then on always the first: nothing is drafted behind a run that stands whole."""

    def distribution(self, confidences: Sequence[float], round_number: int) -> NDArray[np.float64]:
        doubtful = round_number == 1 and len(confidences) > 2 and confidences[2] < 0.5
        expected = AlwaysNone if doubtful or round_number > 1 else AlwaysAll
        return expected().distribution(confidences, round_number)


def sample_rejected_run(draft_with: DraftSampling) -> Counter[tuple[int, ...]]:
    """A run of four, the first often rejected: the branch for that is drafted on only if the
    drafter drew the third against the odds. If so the next run reaches the third's position,
    else the target's own token does."""
    drafter = by_position(0.97, 0.97, 0.6, 0.95, 0.8, 0.97, 0.9)
    target = by_position(0.97, 0.97, 0.1, 0.95, 0.8, 0.97, 0.9)
    return sample(
        "branch-prediction",
        (
            Goal(max_tokens=8, lookahead=1, predictor="picky"),
            Capacity(target_s=0.05, drafter_s=0.01),
            Chances(quick_draft=0.98),
        ),
        (target, [drafter]),
        num_samples=1_000,
        draft_with=draft_with,
    )


def test_tokens_after_a_rejected_one_do_not_tip_the_scales(monkeypatch):
    monkeypatch.setitem(PREDICTORS, "picky", lambda _: Picky())
    assert excess_at(4, sample_rejected_run(draft_sampling), 0.8) < 1


def test_drafts_that_share_their_noise_would_be_seen(monkeypatch):
    monkeypatch.setitem(PREDICTORS, "picky", lambda _: Picky())
    assert excess_at(4, sample_rejected_run(lambda sampling, task, epoch: sampling), 0.8) > 1


def sample_unsure_drafter() -> Counter[tuple[int, ...]]:
    """A drafter that is wrong about the first token, and now and then unsure of it."""
    models = (by_position(0.5, 0.5, 0.5), [by_position(0.9, 0.5, 0.5)])
    capacity = Capacity(target_s=0.01, drafter_s=0.003)
    return sample("speculative", (Goal(3), capacity, Chances()), models, num_samples=2_500)


def test_a_draft_that_ends_where_the_drafter_is_unsure_does_not_tip_the_scales():
    assert excess_at(0, sample_unsure_drafter(), 0.5) < 1


def test_leaving_out_the_token_that_the_drafter_is_unsure_of_would_be_seen(monkeypatch):
    def without_unsure_tail(self: GrowingTree) -> DraftTree:
        run = self.chain_below(0)
        while run.tokens and run.confidences[-1] < 0.5:
            run = run.first(len(run.tokens) - 1)
        return DraftTree(TokenTree.chain(run.tokens), {}, run.drawn_from)

    monkeypatch.setattr(GrowingTree, "whole", property(without_unsure_tail))
    assert excess_at(0, sample_unsure_drafter(), 0.5) > 1


def sample_bonus() -> Counter[tuple[int, ...]]:
    """The first token is mostly told by a verification that has nothing to check."""
    scene = Goal(2), Capacity(num_verifiers=3), Chances(quick_draft=0.9)
    return sample("dsi", scene, (by_position(0.5), [by_position(0.6)]), num_samples=1_500)


def test_a_draft_token_that_meets_the_bonus_distribution_does_not_tip_the_scales():
    assert excess_at(0, sample_bonus(), 0.5) < 1


def test_a_draft_token_that_meets_it_only_if_it_is_the_likelier_would_be_seen(monkeypatch):
    def drawn_at(self: Chain, position: int) -> tuple[int, Distribution] | None:
        drawn = unbiased(self, position)
        return drawn if drawn is not None and drawn[0] == 0 else None

    unbiased = Chain.drawn_at
    monkeypatch.setattr(Chain, "drawn_at", drawn_at)
    assert excess_at(0, sample_bonus(), 0.5) > 1
