"""Predictors make laws, learn from what they see, and are the better the more they may know."""

import math
from itertools import cycle, islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specmesh.decoding.noise import Purpose
from specmesh.decoding.predict.acceptance_rate import PRIOR_ALPHA
from specmesh.decoding.predict.phi import Phi
from specmesh.decoding.predict.predictors import (
    PREDICTORS,
    DrafterConfidence,
    DraftOutcome,
    SampledPhi,
)

LEARNERS = ("phi", "history", "confidence")
CONFIDENCES = st.lists(st.floats(0, 1), max_size=10).map(tuple)
OUTCOMES = CONFIDENCES.flatmap(
    lambda confidences: st.builds(
        DraftOutcome, st.integers(0, len(confidences)), st.just(confidences)
    )
)


def losses(name, outcomes):
    """-log P(what happened), by round."""
    predictor = PREDICTORS[name](0)
    found = []
    for round_number, outcome in enumerate(outcomes):
        law = predictor.distribution(outcome.confidences, round_number)
        found.append(-math.log(max(law[outcome.num_accepted], 1e-300)))
        predictor.observe(outcome)
    return np.array(found)


def rounds(accepted_counts, n=8, confidence=0.8):
    return [DraftOutcome(accepted, (confidence,) * n) for accepted in accepted_counts]


def drawn_rounds(count, accepts, n=8, seed=1):
    """Rounds of which a token of confidence c is accepted with probability ``accepts(c)``."""
    random = np.random.default_rng(seed)
    outcomes = []
    for _ in range(count):
        confidences = random.uniform(0.3, 0.999, n)
        tried = random.random(n) < accepts(confidences)
        outcomes.append(DraftOutcome(int(np.cumprod(tried).sum()), tuple(confidences.tolist())))
    return outcomes


@pytest.mark.parametrize("name", PREDICTORS)
@settings(deadline=None, max_examples=50)
@given(st.lists(OUTCOMES, max_size=20), CONFIDENCES)
def test_predictions_are_laws_whatever_was_seen(name, outcomes, confidences):
    predictor = PREDICTORS[name](0)
    for outcome in outcomes:
        predictor.observe(outcome)
    law = predictor.distribution(confidences, len(outcomes))
    assert law.shape == (len(confidences) + 1,)
    assert law.min() >= 0
    assert law.sum() == pytest.approx(1)


@pytest.mark.parametrize("name", PREDICTORS)
def test_each_predictor_begins_afresh(name):
    confidences = (0.9, 0.5, 0.7)
    before = PREDICTORS[name](0).distribution(confidences, 0)
    taught = PREDICTORS[name](0)
    for _ in range(50):
        taught.observe(DraftOutcome(0, confidences))
    assert PREDICTORS[name](0).distribution(confidences, 0).tolist() == before.tolist()


@pytest.mark.parametrize("name", PREDICTORS)
def test_asking_changes_nothing(name):
    predictor = PREDICTORS[name](0)
    first = predictor.distribution((0.9, 0.5, 0.7), 3)
    predictor.distribution((0.1,) * 9, 4)
    assert predictor.distribution((0.9, 0.5, 0.7), 3).tolist() == first.tolist()


@pytest.mark.parametrize("num_accepted", [-1, 3])
def test_more_accepted_than_drafted_is_refused(num_accepted):
    with pytest.raises(ValueError, match="of 2 tokens"):
        DraftOutcome(num_accepted, (0.5, 0.5))


def test_tokens_after_a_rejection_were_never_tried():
    assert DraftOutcome(2, (0.5,) * 4).trials == (True, True, False)
    assert DraftOutcome(2, (0.5,) * 2).trials == (True, True)
    assert DraftOutcome(0, ()).trials == ()


def test_static_predictors_never_change_their_mind():
    every, none = PREDICTORS["always-all"](0), PREDICTORS["always-none"](0)
    for predictor in (every, none):
        predictor.observe(DraftOutcome(1, (0.5,) * 3))
    assert every.distribution((0.5,) * 3, 1).tolist() == [0, 0, 0, 1]
    assert none.distribution((0.5,) * 3, 1).tolist() == [1, 0, 0, 0]


@pytest.mark.parametrize("name", ["phi", "history"])
def test_independent_acceptance_is_taken_for_granted_at_first(name):
    law = PREDICTORS[name](0).distribution((0.5,) * 8, 0)
    assert law == pytest.approx(Phi.iid(PRIOR_ALPHA).probabilities(8), abs=0.01)


@pytest.mark.parametrize("name", LEARNERS)
def test_first_round_does_not_decide_the_second(name):
    predictor = PREDICTORS[name](0)
    predictor.observe(DraftOutcome(0, (0.7,) * 8))
    assert predictor.distribution((0.7,) * 8, 1)[0] < 0.7


@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.parametrize("num_accepted", [0, 8])
def test_a_stream_that_always_ends_alike_is_learnt(name, num_accepted):
    predictor = PREDICTORS[name](0)
    for outcome in rounds([num_accepted] * 20):
        predictor.observe(outcome)
    law = predictor.distribution((0.8,) * 8, 20)
    assert law.argmax() == num_accepted
    assert law[num_accepted] > 0.7


def test_phi_learns_the_law_behind_the_rounds():
    truth = Phi(0.8, 0.6, 0.02).probabilities(8)
    accepted_counts = np.random.default_rng(2).choice(9, size=3000, p=truth)
    predictor = PREDICTORS["phi"](0)
    for outcome in rounds(accepted_counts.tolist()):
        predictor.observe(outcome)
    assert predictor.distribution((0.5,) * 8, 0) == pytest.approx(truth, abs=0.03)


def test_phi_learns_from_drafts_of_any_length():
    random = np.random.default_rng(3)
    predictor = PREDICTORS["phi"](0)
    for n in random.integers(1, 9, size=4000).tolist():
        accepted = int(np.cumprod(random.random(n) < 0.85).sum())
        predictor.observe(DraftOutcome(accepted, (0.5,) * n))
    assert predictor.distribution((0.5,) * 8, 0) == pytest.approx(
        Phi.iid(0.85).probabilities(8), abs=0.03
    )


def test_sampled_phi_draws_each_number_as_often_as_phi_expects():
    confidences = (0.5,) * 4
    predictor, phi = SampledPhi(0), PREDICTORS["phi"](0)
    drawn = np.array([predictor.distribution(confidences, number) for number in range(4000)])
    assert set(drawn.ravel().tolist()) == {0, 1}
    assert drawn.mean(axis=0) == pytest.approx(phi.distribution(confidences, 0), abs=0.03)


def test_sampled_phi_draws_anew_for_another_seed():
    confidences = (0.5,) * 4
    one, other = (
        [SampledPhi(seed).distribution(confidences, number).argmax() for number in range(64)]
        for seed in (1, 2)
    )
    assert one != other


def test_noise_for_predictions_keeps_its_number():
    assert int(Purpose.PREDICT) == 4


@pytest.mark.parametrize("pattern", [(0, 8), (8, 8, 0), (3, 8), (0, 8, 8, 8)])
def test_a_stream_with_a_pattern_is_foreseen_by_history_alone(pattern):
    outcomes = rounds(islice(cycle(pattern), 80))
    # After a few turns of the pattern.
    history, phi = losses("history", outcomes)[20:], losses("phi", outcomes)[20:]
    assert history.mean() < phi.mean() - 0.2


def test_history_follows_a_change_of_mood():
    outcomes = rounds([0] * 100 + [8] * 30)
    assert losses("history", outcomes)[-1] < 0.2
    assert losses("history", outcomes)[-1] < losses("phi", outcomes)[-1]


def test_history_counts_no_round_without_a_draft():
    predictor = PREDICTORS["history"](0)
    predictor.observe(DraftOutcome(0, (0.5,)))
    before = predictor.distribution((0.5,) * 3, 1)
    predictor.observe(DraftOutcome(0, ()))
    assert predictor.distribution((0.5,) * 3, 2).tolist() == before.tolist()


def test_history_hardly_loses_where_there_is_none():
    outcomes = drawn_rounds(2000, lambda confidences: 0.8 + 0 * confidences)
    assert losses("history", outcomes).mean() < losses("phi", outcomes).mean() + 0.05


def test_confidence_takes_an_untried_drafter_at_its_word():
    law = DrafterConfidence().distribution((0.9, 0.5, 0.8), 0)
    assert law == pytest.approx([0.1, 0.45, 0.09, 0.36])


def uncalibrated_losses(outcomes):
    return np.array(
        [
            -math.log(
                DrafterConfidence().distribution(outcome.confidences, 0)[outcome.num_accepted]
            )
            for outcome in outcomes
        ]
    )


def sharpened(slope, bias):
    """The acceptance behind confidences whose logits are off by a slope and a bias."""
    return lambda c: 1 / (1 + np.exp(-(slope * np.log(c / (1 - c)) + bias)))


@pytest.mark.parametrize(("slope", "bias"), [(0.5, -0.5), (0.3, 0.0), (1.0, -1.5)])
def test_calibration_improves_on_an_overconfident_drafter(slope, bias):
    outcomes = drawn_rounds(400, sharpened(slope, bias))
    assert losses("confidence", outcomes).mean() < uncalibrated_losses(outcomes).mean() - 0.05


def test_calibration_finds_the_acceptance_behind_the_confidences():
    accepts = sharpened(0.5, -0.5)
    predictor = DrafterConfidence()
    for outcome in drawn_rounds(3000, accepts):
        predictor.observe(outcome)
    for confidence in (0.4, 0.7, 0.95):
        _, accepted = predictor.distribution((confidence,), 0)
        assert accepted == pytest.approx(accepts(confidence), abs=0.03)


def test_calibration_costs_little_where_the_drafter_is_honest():
    # Two parameters are worth about the log of the tokens tried, 7 nats here.
    outcomes = drawn_rounds(400, lambda confidences: confidences)
    assert losses("confidence", outcomes).sum() < uncalibrated_losses(outcomes).sum() + 7


def test_confidence_knows_more_than_counting():
    outcomes = drawn_rounds(1000, lambda confidences: confidences)
    confident = losses("confidence", outcomes).mean()
    assert confident < min(losses(name, outcomes).mean() for name in ("phi", "history")) - 0.1


def test_one_rejection_of_a_sure_token_does_not_end_all_trust():
    predictor = DrafterConfidence()
    predictor.observe(DraftOutcome(0, (1.0,)))
    _, accepted = predictor.distribution((0.9,), 1)
    assert 0.5 < accepted < 0.9


def test_a_surer_drafter_is_never_believed_less():
    predictor = DrafterConfidence()
    # The sure tokens are rejected, the unsure ones accepted.
    for _ in range(200):
        predictor.observe(DraftOutcome(0, (0.99,)))
        predictor.observe(DraftOutcome(1, (0.2,)))
    accepted = [predictor.distribution((c,), 0)[1] for c in (0.01, 0.2, 0.5, 0.8, 0.99)]
    assert accepted == sorted(accepted)
