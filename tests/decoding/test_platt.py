"""Confidences made probabilities, verdict by verdict."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specmesh.decoding.predict.platt import MAX_BIAS, MAX_SLOPE, OnlinePlatt, Platt, logit

CONFIDENCES = st.floats(0, 1)
TRIALS = st.lists(st.tuples(CONFIDENCES, st.booleans()), max_size=200)


def taught(trials) -> OnlinePlatt:
    online = OnlinePlatt()
    online.learn([confidence for confidence, _ in trials], [accepted for _, accepted in trials])
    return online


def test_at_first_the_drafter_is_taken_at_its_word():
    assert [Platt()(c) for c in (0.1, 0.5, 0.9)] == pytest.approx([0.1, 0.5, 0.9])


@pytest.mark.parametrize(("slope", "bias"), [(1.0, 0.0), (0.5, -0.7), (2.0, 1.0)])
def test_what_is_true_of_the_drafter_is_found_out(slope, bias):
    rng, truth = random.Random(3), Platt(slope, bias)
    confidences = [rng.uniform(0.02, 0.98) for _ in range(20_000)]
    found = taught([(c, rng.random() < truth(c)) for c in confidences]).latest
    assert [found(c) for c in (0.1, 0.5, 0.9)] == pytest.approx(
        [truth(c) for c in (0.1, 0.5, 0.9)], abs=0.03
    )


@given(TRIALS)
def test_whatever_happens_it_stays_within_its_bounds_and_never_falls(trials):
    found = taught(trials).latest
    assert 0 <= found.slope <= MAX_SLOPE
    assert -MAX_BIAS <= found.bias <= MAX_BIAS
    probabilities = [found(step / 20) for step in range(21)]
    assert all(0 <= each <= 1 for each in probabilities)
    assert probabilities == sorted(probabilities)


def test_one_sure_token_that_is_rejected_does_not_throw_it_off():
    assert taught([(1.0, False)]).latest(0.9) > 0.5


def test_certainty_has_a_finite_logit():
    assert (logit(0.0), logit(1.0)) == pytest.approx((-9.21, 9.21), abs=0.01)
