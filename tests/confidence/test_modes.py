"""Whether a place is kept: by the drafter's distribution, in coupled mode by the noise as well."""

from __future__ import annotations

from collections import Counter
from functools import cache
from statistics import median

import numpy as np
import pytest
from tests.decoding.test_losslessness import excess

from specmesh.confidence.assessor import Assessor
from specmesh.decoding.drafting import Drawn, draw_children
from specmesh.decoding.predict.confidence import SCORERS
from specmesh.decoding.predict.thresholds import Constant, FilterOptions
from specmesh.decoding.sampling import AcceptanceMode, Sampling

DRAFTER = {7: 0.8, 8: 0.15, 9: 0.05}
"""What the drafter thinks at the place, by token."""
POSITION = 40
NUM_SEEDS = 2_000


def draws(mode: AcceptanceMode) -> list[Drawn]:
    """What is drawn at the place, by seed."""
    logits = np.full(10, -np.inf, dtype=np.float32)
    logits[list(DRAFTER)] = np.log(list(DRAFTER.values()))
    return [
        draw_children(logits, Sampling(seed=seed, mode=mode), POSITION, 1, num_choices=2)
        for seed in range(NUM_SEEDS)
    ]


@cache
def between(scorer: str) -> float:
    """A threshold that, with the noise in, half of the seeds pass."""
    choices = [each.choices for each in draws(AcceptanceMode.COUPLED) if each.choices is not None]
    return median(map(SCORERS[scorer], choices))


def kept(drawn: Drawn, scorer: str) -> bool:
    assert drawn.choices is not None
    assessor = Assessor(scorer, Constant(between(scorer)), None)
    return assessor.assess([drawn.choices], FilterOptions(), 0.0).keeps[0]


@pytest.mark.parametrize("scorer", SCORERS)
@pytest.mark.parametrize("mode", [AcceptanceMode.GREEDY, AcceptanceMode.REJECTION])
def test_whether_a_place_is_kept_follows_from_the_drafters_distribution(mode, scorer):
    drawn = draws(mode)
    assert len({each.children for each in drawn}) == (1 if mode is AcceptanceMode.GREEDY else 3)
    assert len({kept(each, scorer) for each in drawn}) == 1


@pytest.mark.parametrize("scorer", SCORERS)
def test_whether_a_place_is_kept_depends_on_the_seed_in_coupled_mode(scorer):
    share = sum(kept(each, scorer) for each in draws(AcceptanceMode.COUPLED)) / NUM_SEEDS
    assert 0.1 < share < 0.9


def test_tokens_kept_in_coupled_mode_are_no_sample_of_the_drafters_distribution():
    drawn = draws(AcceptanceMode.COUPLED)
    law = {(token,): probability for token, probability in DRAFTER.items()}
    assert excess(Counter(each.children for each in drawn), law) < 1
    sure = Counter(each.children for each in drawn if kept(each, "log-probability"))
    assert excess(sure, law) > 1
