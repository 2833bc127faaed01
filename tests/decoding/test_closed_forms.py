"""The closed forms against the papers' numbers, enumeration and brute force."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specmesh.decoding.predict.closed_forms import (
    acceptance_rate,
    branch_throughput,
    estimate_alpha,
    expected_tokens,
    min_draft,
    min_lookahead,
    required_parallelism,
    speculative_throughput,
    walltime_factor,
)

RATES = st.floats(0, 1)
GAMMAS = st.integers(0, 12)
TIMES = st.floats(0.01, 1e4)


@pytest.mark.parametrize(
    ("alpha", "gamma", "speed"),
    [
        (0.6, 2, 1.96),
        (0.7, 3, 2.53),
        (0.8, 2, 2.44),
        (0.8, 5, 3.69),
        (0.9, 2, 2.71),
        (0.9, 10, 6.86),
    ],
)
def test_speeds_match_table_1_of_leviathan(alpha, gamma, speed):
    # The table takes a drafter that costs nothing.
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


@settings(deadline=None)
@given(TIMES, TIMES, GAMMAS, RATES)
def test_throughputs_of_both_papers_agree(target_ms, drafter_ms, gamma, alpha):
    # Eq. 7 over Eq. 6 (the target alone) of branch prediction is Leviathan et al.'s Theorem 3.8.
    gain = speculative_throughput(target_ms, drafter_ms, gamma, alpha) * target_ms
    assert gain == pytest.approx(walltime_factor(alpha, gamma, drafter_ms / target_ms))


def test_a_right_prediction_hides_the_verification():
    # 8 tokens at 1 ms each, 6 ms to verify: Eq. 8 with its two cases put right.
    tokens = expected_tokens(0.8, 8)
    assert branch_throughput(6, 1, 8, 0.8, hit_rate=1) == pytest.approx(tokens / 8)
    assert branch_throughput(6, 1, 8, 0.8, hit_rate=1, shortfall=2) == pytest.approx(tokens / 10)
    assert branch_throughput(6, 1, 8, 0.8, hit_rate=0) == pytest.approx(tokens / 14)


@settings(deadline=None)
@given(TIMES, TIMES, st.integers(1, 12), RATES, RATES)
def test_branch_prediction_never_slows_down(target_ms, drafter_ms, gamma, alpha, hit_rate):
    # Eq. 9.
    speculative = speculative_throughput(target_ms, drafter_ms, gamma, alpha)
    predicted = branch_throughput(target_ms, drafter_ms, gamma, alpha, hit_rate)
    assert predicted >= speculative * (1 - 1e-9)


def test_no_prediction_outpaces_the_target():
    # Drafts of 2 ms hide no more than 2 of the 6 ms: a round takes 6.
    assert branch_throughput(6, 1, 2, 1, hit_rate=1) == pytest.approx(3 / 6)


def test_branch_throughput_is_what_many_rounds_measure():
    hits = np.random.default_rng(1).random(200_000) < 0.6
    took = np.where(hits, 8, 14).sum()
    measured = len(hits) * expected_tokens(0.8, 8) / took
    assert branch_throughput(6, 1, 8, 0.8, hit_rate=0.6) == pytest.approx(measured, rel=0.01)


@pytest.mark.parametrize(
    ("target_ms", "drafter_ms", "gamma"),
    [(6, 1, 6), (6.1, 1, 7), (1, 6, 1), (0.1 * 3, 0.1, 3), (1 / 6.13, 1 / 45.59, 8)],
)
def test_min_draft_is_the_shortest_that_hides_a_verification(target_ms, drafter_ms, gamma):
    # The last: 15M and 110M of Table 3, and the n = 8 that Section 6.3 begins at.
    assert min_draft(target_ms, drafter_ms) == gamma


def test_rounding_errors_ask_for_no_replica_or_lookahead_more():
    assert 0.1 * 3 / 0.1 > 3
    assert required_parallelism(0.1 * 3, 0.1, lookahead=1) == 3
    assert min_lookahead(0.1 * 3, 0.1, sp=3) == 1
    assert min_lookahead(0.1 * 3, 0.1, sp=1) == 3


@settings(deadline=None)
@given(st.integers(1, 1000), st.floats(1e-3, 1e3))
def test_whole_ratios_stay_whole(ratio, drafter_ms):
    assert min_draft(ratio * drafter_ms, drafter_ms) == ratio
    assert required_parallelism(ratio * drafter_ms, drafter_ms, lookahead=1) == ratio
