"""Draft tokens that meet a bonus distribution: the target's law, and the best acceptance."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.decoding.test_losslessness import PROMPT, excess, table

from specmesh.decoding.acceptance import verify
from specmesh.decoding.bonus import Bonus
from specmesh.decoding.drafting import draw_children
from specmesh.decoding.noise import Purpose, uniforms
from specmesh.decoding.sampling import AcceptanceMode, Sampling, warp
from specmesh.decoding.trees.tree import EMPTY, TokenTree
from specmesh.mesh.v1alpha1.cost_pb2 import ComputeCost
from specmesh.serving.codec.verdicts import VerificationRequest, read_verdict, write_verdict

VOCAB_SIZE = 8
TARGET = table(1, VOCAB_SIZE)(PROMPT)
DRAFTERS = [table(seed, VOCAB_SIZE)(PROMPT) for seed in (2, 3)]
NUM_SAMPLES = 2_000
POSITION = len(PROMPT)


def sampling(seed: int) -> Sampling:
    return Sampling(seed=seed, mode=AcceptanceMode.REJECTION)


def bonus(seed: int, num_candidates: int) -> Bonus:
    verdict = verify(EMPTY, TARGET[None], sampling(seed), POSITION, {}, num_candidates)
    assert verdict.bonus is not None
    return verdict.bonus


def drawn(logits: NDArray[np.float32], seed: int):
    draw = draw_children(logits, sampling(seed), POSITION, 1)
    assert draw.distribution is not None
    return draw.children[0], draw.distribution


def law(logits: NDArray[np.float32]) -> dict[tuple[int, ...], float]:
    warped = warp(logits, Sampling())
    return {
        (token,): p
        for token, p in zip(warped.token_ids.tolist(), warped.probabilities.tolist(), strict=True)
    }


@pytest.mark.parametrize("num_candidates", [1, 3, VOCAB_SIZE])
@pytest.mark.parametrize("num_drafts", [0, 1, 2])
def test_whatever_it_meets_the_token_has_the_targets_law(num_candidates, num_drafts):
    counts: Counter[tuple[int, ...]] = Counter()
    for seed in range(NUM_SAMPLES):
        # Each draft has noise of its own, as in the mesh.
        drafts = [drawn(DRAFTERS[n], seed + (n + 1) * 2**40) for n in range(num_drafts)]
        counts[(bonus(seed, num_candidates).meet(drafts),)] += 1
    assert excess(counts, law(TARGET)) < 1


def test_a_bonus_that_takes_the_draft_without_a_test_would_be_seen():
    counts: Counter[tuple[int, ...]] = Counter()
    for seed in range(NUM_SAMPLES):
        counts[drawn(DRAFTERS[0], seed)[:1]] += 1
    assert excess(counts, law(TARGET)) > 1


def test_a_draft_stands_as_often_as_in_a_verification():
    """With probability Σ min(p, q), where a bonus token alone would equal it with Σ p·q."""
    p, q = (warp(logits, Sampling()).probabilities for logits in (TARGET, DRAFTERS[0]))
    met = alone = 0
    for seed in range(NUM_SAMPLES):
        token, drawn_from = drawn(DRAFTERS[0], seed)
        told = bonus(seed, VOCAB_SIZE)
        met += told.meet([(token, drawn_from)]) == token
        alone += told.meet([]) == token
    error = 4 * 0.5 / NUM_SAMPLES**0.5
    assert met / NUM_SAMPLES == pytest.approx(np.minimum(p, q).sum(), abs=error)
    assert alone / NUM_SAMPLES == pytest.approx((p * q).sum(), abs=error)


@pytest.mark.parametrize("seed", range(50))
def test_it_says_what_a_verification_of_the_draft_would_have_said(seed):
    """So it doesn't matter which of the two comes first; that of a token in the tail may differ,
    with the same law."""
    token, drawn_from = drawn(DRAFTERS[0], seed)
    logits = np.stack([TARGET, TARGET])
    verdict = verify(TokenTree.chain([token]), logits, sampling(seed), POSITION, {0: drawn_from})
    first = token if verdict.accepted_nodes else verdict.next_token
    assert bonus(seed, VOCAB_SIZE).meet([(token, drawn_from)]) == first


@pytest.mark.parametrize("num_candidates", [1, 3, VOCAB_SIZE])
def test_where_nothing_was_drafted_it_is_the_token_that_the_verdict_names(num_candidates):
    for seed in range(200):
        verdict = verify(EMPTY, TARGET[None], sampling(seed), POSITION, {}, num_candidates)
        assert verdict.bonus is not None
        alone = verify(EMPTY, TARGET[None], sampling(seed), POSITION)
        assert verdict.bonus.meet([]) == verdict.next_token == alone.next_token


def test_only_a_bonus_token_of_rejection_mode_has_a_distribution():
    wrong = int(TARGET.argmin())
    certain = Sampling(temperature=1e-3, seed=1, mode=AcceptanceMode.REJECTION)
    _, drawn_from = drawn(TARGET, 1)
    rejected = verify(
        TokenTree.chain([wrong]), np.stack([TARGET, TARGET]), certain, POSITION, {0: drawn_from}, 8
    )
    assert rejected.recovered
    assert rejected.bonus is None
    assert verify(EMPTY, TARGET[None], Sampling(seed=1), POSITION, {}, 8).bonus is None
    assert verify(EMPTY, TARGET[None], sampling(1), POSITION).bonus is None


def test_noise_of_the_draft_that_decides_its_acceptance_would_be_seen(monkeypatch):
    def confused(seed, position, purpose, ids):
        return uniforms(seed, position, Purpose.DRAFT, ids)

    monkeypatch.setattr("specmesh.decoding.bonus.uniforms", confused)
    counts: Counter[tuple[int, ...]] = Counter()
    for seed in range(NUM_SAMPLES):
        counts[(bonus(seed, VOCAB_SIZE).meet([drawn(DRAFTERS[0], seed)]),)] += 1
    assert excess(counts, law(TARGET)) > 1


def test_the_only_token_of_a_tail_has_no_more_than_its_mass():
    noise = np.random.default_rng(0)
    for seed in range(60):  # with a few of which rounding would have it otherwise
        tokens = noise.choice(1 << 15, 65, replace=False)
        logits = np.full((1, 1 << 15), -np.inf, np.float32)
        logits[0, tokens] = 2 * noise.normal(size=65)
        warm = Sampling(temperature=0.7, seed=seed, mode=AcceptanceMode.REJECTION)
        one = verify(EMPTY, logits, warm, POSITION, {}, 64).bonus
        assert one is not None
        assert 0 < one.tail_token_probability <= one.tail_mass


def told(logits: NDArray[np.float32], temperature: float, seed: int) -> Bonus:
    """The bonus as its caller reads it."""
    cold = Sampling(temperature=temperature, seed=seed, mode=AcceptanceMode.REJECTION)
    verdict = verify(EMPTY, logits[None], cold, POSITION, {}, 64)
    asked = VerificationRequest(EMPTY, POSITION, cold, logits.size, 64)
    bonus = read_verdict(write_verdict(verdict, ComputeCost()), asked).bonus
    assert bonus is not None
    return bonus


def test_a_tail_that_underflows_is_none():
    ranks = np.sort(np.random.default_rng(1).standard_normal(1 << 15).astype(np.float32))[::-1]
    for seed in range(40):
        logits = ranks.copy()
        logits[0] = logits[64] + 7.4 + seed * 2e-3
        assert told(logits, 0.01, seed).outcomes.sum() == pytest.approx(1)


def test_a_likely_token_that_underflows_beside_others_belongs_to_the_tail():
    logits = np.full(100, -100, np.float32)
    logits[:3] = 0
    for seed in range(40):
        logits[3] = -7.44 - seed * 2e-4
        assert told(logits, 0.01, seed).token_ids.tolist() == [0, 1, 2]
