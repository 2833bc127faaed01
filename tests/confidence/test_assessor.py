"""Which tokens are kept, and which scores a threshold learns from."""

from __future__ import annotations

import math

import pytest

from specmesh.confidence.assessor import Assessor
from specmesh.decoding.drafting import TopK
from specmesh.decoding.errors import InvalidField
from specmesh.decoding.predict.thresholds import (
    ENOUGH,
    Constant,
    EscalationRate,
    FilterOptions,
    FollowLoad,
)

KEEP_ALL = Constant(-math.inf)


def positions(*probabilities: float) -> list[TopK]:
    return [TopK((7,), (probability,), 0.5) for probability in probabilities]


def assessor(scorer: str = "log-probability", rule=None) -> Assessor:
    return Assessor(scorer, rule or Constant(math.log(0.5)), None)


def test_tokens_above_the_threshold_are_kept():
    assessment = assessor().assess(positions(0.9, 0.6, 0.5, 0.4, 0.8), FilterOptions(), 0.0)
    assert assessment.keeps == (True, True, False, False, True)
    assert assessment.scores == pytest.approx(list(map(math.log, (0.9, 0.6, 0.5, 0.4, 0.8))))
    assert (assessment.num_kept, assessment.num_escalated) == (2, 2)


@pytest.mark.parametrize(("threshold", "kept"), [(-math.inf, 3), (math.inf, 0)])
def test_infinite_thresholds_keep_all_and_nothing(threshold: float, kept: int):
    options = FilterOptions(rule=Constant(threshold))
    assessment = assessor().assess(positions(1.0, 0.5, 1e-30), options, 0.0)
    assert (assessment.num_kept, assessment.num_escalated) == (kept, 3 - kept)


def test_a_request_chooses_its_scorer_and_its_rule():
    options = FilterOptions("entropy", Constant(-0.6))
    assessment = assessor(rule=Constant(math.inf)).assess(positions(0.1), options, 0.0)
    assert assessment.scorer == "entropy"
    assert assessment.scores == (-0.5,)
    assert assessment.keeps == (True,)


def test_a_scorer_that_is_not_there_is_refused():
    with pytest.raises(InvalidField, match="no calibration"):
        assessor("calibrated")
    with pytest.raises(InvalidField, match="no calibration") as caught:
        assessor().assess(positions(0.5), FilterOptions("calibrated"), 0.0)
    assert caught.value.field == "scorer"


def test_a_calibration_is_a_scorer_like_the_others():
    calibrated = Assessor("calibrated", Constant(0.7), lambda choices: choices.probabilities[0])
    assert calibrated.assess(positions(0.8, 0.7), FilterOptions(), 0.0).keeps == (True, False)


def test_a_share_holds_over_the_scores_of_all_sessions():
    sharing = assessor(rule=EscalationRate(0.25))
    for n in range(400):
        sharing.assess(positions((n * 37 % 100 + 1) / 101), FilterOptions(), 0.0)
    kept = [
        sharing.assess(positions((n * 37 % 100 + 1) / 101), FilterOptions(), 0.0).num_kept
        for n in range(400)
    ]
    assert sum(kept) / 400 == pytest.approx(0.75, abs=0.03)


def test_a_share_is_escalated_in_full_until_enough_is_known():
    sharing = assessor(rule=EscalationRate(0.1))
    first = [
        sharing.assess(positions(0.5), FilterOptions(), 0.0).num_escalated for _ in range(ENOUGH)
    ]
    assert first == [1] * ENOUGH


def test_scores_of_places_not_decided_on_are_not_learnt():
    """The fourth and fifth place follow a run of unsure ones: the target may end the draft."""
    learning = assessor()
    for _ in range(ENOUGH):
        learning.assess(positions(0.6, 0.4, 0.3, 0.9, 0.1), FilterOptions(), 0.0)
    median = learning.assess(positions(0.5), FilterOptions(rule=EscalationRate(0.5)), 0.0).threshold
    assert median == pytest.approx(math.log(0.4))


def test_each_scorer_learns_for_itself():
    learning = assessor()
    for _ in range(ENOUGH):
        learning.assess(positions(0.6), FilterOptions(), 0.0)
    half = FilterOptions("margin", EscalationRate(0.5))
    assert learning.assess(positions(0.6), half, 0.0).threshold == math.inf


def test_a_rule_that_follows_the_load_escalates_less_under_load():
    learning = assessor(rule=KEEP_ALL)
    for n in range(100):
        learning.assess(positions((n + 1) / 101), FilterOptions(), 0.0)
    follow = FilterOptions(rule=FollowLoad(0.1, 0.9))
    idle, busy = (learning.assess(positions(0.5), follow, load).threshold for load in (0.0, 1.0))
    assert math.exp(busy) == pytest.approx(0.1, abs=0.02)
    assert math.exp(idle) == pytest.approx(0.9, abs=0.02)
