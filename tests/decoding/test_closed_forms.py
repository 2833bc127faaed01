"""The closed forms against the papers' numbers, enumeration and brute force."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specmesh.decoding.closed_forms import (
    acceptance_rate,
    estimate_alpha,
    expected_tokens,
    min_lookahead,
    operations_factor,
    optimal_gamma,
    required_parallelism,
    walltime_factor,
)

RATES = st.floats(0, 1)
GAMMAS = st.integers(0, 12)


@pytest.mark.parametrize(
    ("alpha", "gamma", "operations", "speed"),
    [
        (0.6, 2, 1.53, 1.96),
        (0.7, 3, 1.58, 2.53),
        (0.8, 2, 1.23, 2.44),
        (0.8, 5, 1.63, 3.69),
        (0.9, 2, 1.11, 2.71),
        (0.9, 10, 1.60, 6.86),
    ],
)
def test_factors_match_table_1_of_leviathan(alpha, gamma, operations, speed):
    # The table takes a drafter that costs nothing.
    assert round(operations_factor(alpha, gamma, 0), 2) == operations
    assert round(walltime_factor(alpha, gamma, 0), 2) == speed


def law_of_accepted(alpha, gamma):
    """P(k draft tokens accepted) for k in [0, gamma]: geometric, capped."""
    return [alpha**k * (1 - alpha) for k in range(gamma)] + [alpha**gamma]


@settings(deadline=None)
@given(RATES, GAMMAS)
def test_expected_tokens_equal_the_enumerated_mean(alpha, gamma):
    mean = sum((k + 1) * p for k, p in enumerate(law_of_accepted(alpha, gamma)))
    assert expected_tokens(alpha, gamma) == pytest.approx(mean)


def test_a_perfect_drafter_commits_one_more_than_it_drafts():
    assert expected_tokens(1.0, 5) == 6
    assert expected_tokens(1 - 1e-12, 5) == pytest.approx(6)


def test_a_drafter_as_dear_as_the_target_slows_down_unless_it_is_perfect():
    assert walltime_factor(1.0, 4, 1.0) == 1
    assert walltime_factor(0.9, 4, 1.0) < 1


@settings(deadline=None)
@given(RATES, st.floats(0, 2), st.integers(0, 30))
def test_optimal_gamma_is_the_best_of_all(alpha, cost_ratio, max_gamma):
    best = optimal_gamma(alpha, cost_ratio, max_gamma)
    assert 0 <= best <= max_gamma
    for gamma in range(max_gamma + 1):
        ahead = walltime_factor(alpha, best, cost_ratio) - walltime_factor(alpha, gamma, cost_ratio)
        assert ahead > 0 if gamma < best else ahead >= 0


def test_drafting_pays_exactly_when_alpha_exceeds_the_cost():
    # Corollary 3.9 of Leviathan et al.
    assert optimal_gamma(0.5, 0.49, 20) > 0
    assert optimal_gamma(0.5, 0.51, 20) == 0


def test_acceptance_rate_is_one_less_the_total_variation():
    target_probs, draft_probs = np.array([0.5, 0.3, 0.2]), np.array([0.1, 0.3, 0.6])
    variation = np.abs(target_probs - draft_probs).sum() / 2
    assert acceptance_rate(target_probs, draft_probs) == pytest.approx(1 - variation)
    assert acceptance_rate(target_probs, target_probs) == pytest.approx(1)


@settings(deadline=None)
@given(st.lists(st.integers(0, 4), min_size=1))
def test_estimated_alpha_maximises_the_likelihood(accepted_counts):
    estimate = estimate_alpha(accepted_counts, 4)

    def likelihood(alpha):
        return math.prod(law_of_accepted(alpha, 4)[k] for k in accepted_counts)

    assert likelihood(estimate) >= max(map(likelihood, np.linspace(0, 1, 201))) * (1 - 1e-9)


def test_estimated_alpha_finds_the_rate_that_made_the_counts():
    trials = np.random.default_rng(1).random((20_000, 5)) < 0.7
    accepted_counts = np.cumprod(trials, axis=1).sum(axis=1).tolist()
    assert estimate_alpha(accepted_counts, 5) == pytest.approx(0.7, abs=0.01)


@pytest.mark.parametrize(("counts", "gamma"), [([], 3), ([0, 0], 0), ([4], 3), ([-1], 3)])
def test_alpha_is_not_guessed_without_sound_counts(counts, gamma):
    with pytest.raises(ValueError, match=r"counts|tried"):
        estimate_alpha(counts, gamma)


def test_lookaheads_of_the_dsi_paper():
    # Section 3.1: drafter at 5 % with SP 4, and at 10 % on a node with 5 + 1 GPUs.
    assert min_lookahead(100, 5, sp=4) == 5
    assert min_lookahead(100, 10, sp=5) == 2
    assert required_parallelism(100, 10, lookahead=1) == 10
    # Table 2, Starcoder on HumanEval and Vicuna-13B on CNN-DM with SP 7.
    assert min_lookahead(20.6, 6.8, sp=7) == 1
    assert min_lookahead(37.7, 2.5, sp=7) == 3


@settings(deadline=None)
@given(st.floats(0.01, 1e4), st.floats(0.01, 1e3), st.integers(1, 64))
def test_min_lookahead_is_the_smallest_that_never_waits(target_ms, drafter_ms, sp):
    lookahead = min_lookahead(target_ms, drafter_ms, sp)
    assert required_parallelism(target_ms, drafter_ms, lookahead) <= sp
    if lookahead > 1:
        assert required_parallelism(target_ms, drafter_ms, lookahead - 1) > sp
