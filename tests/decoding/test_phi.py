"""The law of accepted tokens: sound for any parameters, and found again from what it made."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specmesh.decoding.predict.closed_forms import estimate_alpha, expected_tokens
from specmesh.decoding.predict.phi import Phi

RATES = st.floats(0, 1)
LENGTHS = st.integers(1, 12)
COUNTS = LENGTHS.flatmap(lambda n: st.lists(st.integers(0, 50), min_size=n + 1, max_size=n + 1))


def log_likelihood(law, counts):
    return math.fsum(
        count * math.log(max(probability, 1e-300))
        for probability, count in zip(law, counts, strict=True)
        if count
    )


@settings(deadline=None)
@given(st.floats(-3, 3), RATES, st.floats(-1, 1), st.integers(0, 20))
def test_any_parameters_make_a_law(a, p, c, n):
    law = Phi(a, p, c).probabilities(n)
    assert law.shape == (n + 1,)
    assert law.min() >= 0
    assert law.sum() == pytest.approx(1)


@settings(deadline=None)
@given(RATES, LENGTHS)
def test_independent_acceptance_leaves_alpha_to_the_n_for_n(alpha, n):
    # Eq. 10, and Eq. 11 with its slip put right.
    law = Phi.iid(alpha).probabilities(n)
    assert law[:n] == pytest.approx([alpha**k * (1 - alpha) for k in range(n)])
    assert law[n] == pytest.approx(alpha**n)
    assert law @ np.arange(1, n + 2) == pytest.approx(expected_tokens(alpha, n))


def test_corrections_move_mass_between_the_tail_and_n():
    # Eq. 12 with numbers that can be followed by hand.
    assert Phi(0.5, 0.5, 0.1).probabilities(3) == pytest.approx([0.35, 0.225, 0.1625, 0.2625])


def test_entries_below_zero_count_as_zero():
    assert Phi(1, 0.5, -0.2).probabilities(3) == pytest.approx([0.3, 0.05, 0, 0.65])


def test_entries_above_one_together_leave_nothing_for_n():
    assert Phi(1, 0.5, 0.5).probabilities(2) == pytest.approx([1 / 1.75, 0.75 / 1.75, 0])


@pytest.mark.parametrize("p", [-0.1, 1.1, math.nan])
def test_p_outside_the_unit_interval_is_refused(p):
    with pytest.raises(ValueError, match="p must be"):
        Phi(1, p, 0)


@pytest.mark.parametrize(
    ("phi", "n"),
    [
        (Phi(0.7, 0.5, 0.03), 8),
        (Phi(0.9, 0.8, 0.01), 10),
        (Phi(1.0, 0.7, 0.0), 8),
        (Phi(0.6, 0.3, 0.02), 15),
    ],
)
def test_fit_finds_the_parameters_that_made_the_counts(phi, n):
    exact = Phi.fit(phi.probabilities(n).tolist())
    assert (exact.a, exact.p, exact.c) == pytest.approx((phi.a, phi.p, phi.c), abs=2e-3)
    counts = np.random.default_rng(1).multinomial(1_000_000, phi.probabilities(n)).tolist()
    sampled = Phi.fit(counts)
    assert (sampled.a, sampled.p, sampled.c) == pytest.approx((phi.a, phi.p, phi.c), abs=0.05)
    assert sampled.goodness(counts) > 0.998


@settings(deadline=None)
@given(COUNTS.filter(any))
def test_fit_is_a_law_and_at_least_as_likely_as_independent_acceptance(counts):
    n = len(counts) - 1
    fitted = Phi.fit(counts)
    assert fitted.a >= 0
    assert fitted.c >= 0
    alpha = estimate_alpha([k for k, count in enumerate(counts) for _ in range(count)], n)
    independent = log_likelihood(Phi.iid(alpha).probabilities(n), counts)
    assert log_likelihood(fitted.probabilities(n), counts) >= independent - 1e-5 * sum(counts)


@settings(deadline=None)
@given(COUNTS.filter(any), RATES, RATES)
def test_no_other_law_with_a_uniform_tail_is_likelier(counts, p, share):
    n = len(counts) - 1
    mass = sum(counts[:n]) / sum(counts)
    other = Phi(mass * (1 - share) / (1 - (p * 0.999) ** n), p * 0.999, mass * share / n)
    fitted = log_likelihood(Phi.fit(counts).probabilities(n), counts)
    assert fitted >= log_likelihood(other.probabilities(n), counts) - 1e-5 * sum(counts)


@settings(deadline=None)
@given(COUNTS.filter(any))
def test_fit_keeps_the_share_of_rounds_that_accepted_all(counts):
    assert Phi.fit(counts).probabilities(len(counts) - 1)[-1] == pytest.approx(
        counts[-1] / sum(counts), abs=1e-12
    )


@settings(deadline=None)
@given(COUNTS.filter(any))
def test_refinement_never_makes_a_fit_less_likely(counts):
    n = len(counts) - 1
    likelihoods = [
        log_likelihood(Phi.fit(counts, refinements).probabilities(n), counts)
        for refinements in (0, 3, 10)
    ]
    slack = 1e-9 * sum(counts)
    assert likelihoods[0] - slack <= likelihoods[1] <= likelihoods[2] + slack


@pytest.mark.parametrize("k", [0, 8])
def test_all_rounds_at_either_end_are_fitted_exactly(k):
    counts = [0] * 9
    counts[k] = 5
    assert Phi.fit(counts).probabilities(8) == pytest.approx(np.eye(9)[k])
    assert Phi.fit(counts).goodness(counts) == pytest.approx(1)


def test_one_round_in_the_middle_is_not_taken_for_a_certainty():
    law = Phi.fit([0, 0, 1, 0, 0]).probabilities(4)
    assert law[2] < 0.5
    assert law[4] == pytest.approx(0)


def test_goodness_is_one_less_the_total_variation():
    assert Phi.iid(0.0).goodness([3, 0, 1]) == pytest.approx(0.75)
    assert Phi.iid(0.0).goodness([0, 0, 1]) == 0


def test_rates_that_differ_between_texts_need_the_corrections():
    # Half the rounds at 0.3, half at 0.9: what Section 5.2.3 adds a and c for.
    n = 8
    counts = (Phi.iid(0.3).probabilities(n) + Phi.iid(0.9).probabilities(n)).tolist()
    accepted = sum(k * count for k, count in enumerate(counts))
    alpha = accepted / (accepted + sum(counts[:n]))
    assert Phi.fit(counts).goodness(counts) > 0.98
    assert Phi.iid(alpha).goodness(counts) < 0.8


@pytest.mark.parametrize("counts", [[], [4], [0, 0, 0], [1, -1, 3], [1, math.nan], [math.inf, 1]])
def test_nothing_is_fitted_to_unsound_counts(counts):
    with pytest.raises(ValueError, match=r"counts|tried"):
        Phi.fit(counts)
