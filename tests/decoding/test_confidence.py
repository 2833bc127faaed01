"""Scores: higher is surer."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specmesh.decoding.drafting import TopK, draw_children
from specmesh.decoding.predict.confidence import (
    CALIBRATED,
    SCORERS,
    entropy,
    log_probability,
    margin,
)
from specmesh.decoding.sampling import Sampling

GREEDY = Sampling(temperature=0)


def test_scores_of_a_place_by_hand():
    place = TopK((4, 2, 9), (0.5, 0.3, 0.1), 1.25)
    assert log_probability(place) == math.log(0.5)  # CALID, Eq. 1, its sign turned round
    assert margin(place) == pytest.approx(0.2)
    assert entropy(place) == -1.25


def test_margin_to_a_second_that_is_not_listed_is_all_of_the_first():
    assert margin(TopK((4,), (0.75,), 0.8)) == 0.75


@pytest.mark.parametrize("name", SCORERS)
@given(seed=st.integers(0, 2**32), heat=st.floats(0.1, 0.9))
def test_a_drafter_that_sharpens_is_surer_by_every_score(name, seed, heat):
    row = np.random.default_rng(seed).normal(size=30)
    vague, sharp = (draw_children(each, GREEDY, 0, 1, 2).choices for each in (row, row / heat))
    assert SCORERS[name](sharp) > SCORERS[name](vague)


@pytest.mark.parametrize("name", SCORERS)
def test_nothing_is_surer_than_a_certain_token(name):
    certain, nearly = (
        draw_children(np.array([other, 3.0]), GREEDY, 0, 1, 2).choices for other in (-np.inf, -9.0)
    )
    assert math.isfinite(SCORERS[name](certain))
    assert SCORERS[name](certain) > SCORERS[name](nearly)


def test_the_calibrated_score_has_a_name_of_its_own():
    assert CALIBRATED not in SCORERS
