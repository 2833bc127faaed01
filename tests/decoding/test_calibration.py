"""A calibrated score is a probability, and ranks positions as the log-probability does."""

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer

from specmesh import models
from specmesh.decoding.drafting import TopK, draw_children
from specmesh.decoding.predict.calibration import MIN_POSITIONS, Calibration, log_odds, reliability
from specmesh.decoding.predict.confidence import SCORERS
from specmesh.decoding.sampling import Sampling, choose

GREEDY = Sampling(temperature=0)


def random_positions(seed, count, vocab_size=40):
    """Places of all degrees of sureness."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(count, vocab_size)) * rng.uniform(0.5, 6, size=(count, 1))
    return [draw_children(row, GREEDY, 0, 1, 2).choices for row in rows]


def verdicts(seed, positions, slope, bias):
    """Of a target that agrees with the sigmoid of the weighted log-odds."""
    scores = np.array([log_odds(place) for place in positions]) * slope + bias
    agrees = np.random.default_rng(seed).random(len(positions)) < 1 / (1 + np.exp(-scores))
    return agrees.tolist()


def chance_to_rank(scores, agreed):
    """That a place where the target agrees scores above one where it doesn't (AUC)."""
    scores, agreed = np.array(scores), np.array(agreed)
    yes, no = scores[agreed][:, None], scores[~agreed][None]
    return ((yes > no) + (yes == no) / 2).mean()


def test_fit_finds_the_slope_and_the_bias_behind_the_verdicts():
    positions = random_positions(1, 40_000)
    calibration = Calibration.fit(positions, verdicts(2, positions, 0.7, 0.4))
    assert calibration.slope == pytest.approx(0.7, abs=0.05)
    assert calibration.bias == pytest.approx(0.4, abs=0.05)
    assert calibration.num_positions == 40_000


@pytest.mark.parametrize("slope", [0.7, 2.0, 0.1])
def test_calibrated_score_is_a_probability_on_places_not_fitted_to(slope):
    positions = random_positions(3, 20_000)
    agreed = verdicts(4, positions, slope, -0.5)
    calibration = Calibration.fit(positions[::2], agreed[::2])
    scores = [calibration(place) for place in positions[1::2]]
    assert reliability(scores, agreed[1::2]).ece < 0.02


def test_calibrated_score_ranks_places_as_the_log_probability_does():
    positions = random_positions(5, 2_000)
    calibration = Calibration.fit(positions, verdicts(6, positions, 0.8, -1.0))
    by_score = sorted(positions, key=calibration)
    assert by_score == sorted(positions, key=SCORERS["log-probability"])


def real_places(target, drafter, prompt, temperature, seed):
    """Every place of held-out text, the drafter's thoughts and the target's verdict."""
    sampling = Sampling(temperature=temperature, seed=seed)
    text = torch.tensor([prompt])
    with torch.inference_mode():
        said, guessed = (model(text).logits[0].numpy() for model in (target, drafter))
    for position in range(len(prompt)):
        drawn = draw_children(guessed[position], sampling, position + 1, 1, 2)
        token = choose(said[position], sampling, position + 1)
        yield drawn.choices, drawn.children[0] == token


@pytest.fixture(scope="module")
def pair():
    names = (models.TARGET, models.DRAFTER)
    return [
        AutoModelForCausalLM.from_pretrained(models.path(name), dtype=torch.float32).eval()
        for name in names
    ]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_shipped_pair_is_calibrated_on_prompts_not_fitted_to(pair, temperature):
    tokenizer = AutoTokenizer.from_pretrained(models.path(models.TARGET))
    halves = [], []
    for n, prompt in enumerate(models.heldout_prompts()):
        tokens = tokenizer.encode(prompt.text)
        halves[n % 2].extend(real_places(*pair, tokens, temperature, seed=n))
    fitted = Calibration.fit(*zip(*halves[0], strict=True))
    positions, agreed = zip(*halves[1], strict=True)
    scores = [fitted(place) for place in positions]
    assert reliability(scores, agreed).ece < 0.05
    singles = [chance_to_rank([score(p) for p in positions], agreed) for score in SCORERS.values()]
    assert chance_to_rank(scores, agreed) > max(singles) - 0.005


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.floats(-3, 3), st.integers(MIN_POSITIONS, 400))
def test_fit_is_the_same_every_time_and_as_good_as_any_other_by_the_share_it_expects(
    seed, bias, count
):
    positions = random_positions(seed, count)
    agreed = verdicts(seed, positions, 0.5, bias)
    agreed[:2] = [True, False]
    calibration = Calibration.fit(positions, agreed)
    assert calibration == Calibration.fit(positions, agreed)
    # Where the likelihood is highest, as many agree as are expected to.
    expected = sum(map(calibration, positions))
    assert expected == pytest.approx(sum(agreed), abs=1e-2)


def test_places_that_one_threshold_divides_get_a_finite_slope():
    positions = random_positions(7, 500)
    sure = [place.probabilities[0] > 0.5 for place in positions]
    calibration = Calibration.fit(positions, sure)
    assert all(map(math.isfinite, (calibration.slope, calibration.bias)))
    assert [calibration(place) > 0.5 for place in positions].count(True) == pytest.approx(
        sure.count(True), abs=10
    )


def test_places_that_are_all_alike_get_the_share_that_agreed():
    positions = [TopK((1, 2), (0.6, 0.3), 0.9)] * 200
    calibration = Calibration.fit(positions, [True, True, True, False] * 50)
    assert calibration(positions[0]) == pytest.approx(0.75, abs=1e-6)


def test_certain_and_hopeless_places_have_finite_log_odds():
    tiny = float(np.finfo(np.float32).tiny)
    assert all(math.isfinite(log_odds(TopK((1,), (p,), 0.0))) for p in (1.0, tiny))


@pytest.mark.parametrize(
    ("agreed", "complaint"),
    [
        ([True] * 200, "agreed at all of 200"),
        ([False] * 200, "agreed at none of 200"),
        ([True, False] * 99, "200 positions, but 198 verdicts"),
    ],
)
def test_places_that_teach_nothing_are_refused(agreed, complaint):
    with pytest.raises(ValueError, match=complaint):
        Calibration.fit(random_positions(8, 200), agreed)


def test_too_few_places_are_refused():
    positions = random_positions(9, MIN_POSITIONS - 1)
    with pytest.raises(ValueError, match=f"{MIN_POSITIONS - 1} positions are too few"):
        Calibration.fit(positions, [True, *[False] * (MIN_POSITIONS - 2)])


@given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6), st.integers(0, 2**40))
def test_calibration_comes_back_from_its_file_the_same(slope, bias, num_positions):
    calibration = Calibration(slope, bias, num_positions)
    text = calibration.to_json()
    assert Calibration.from_json(text) == calibration
    assert set(json.loads(text)) == {"version", "slope", "bias", "num_positions"}


GOOD = json.loads(Calibration(1.0, 0.5, 200).to_json())


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "not a calibration"),
        ("{}", "not a calibration"),
        (json.dumps(GOOD | {"version": 1}), "version 1 is not known, only 2"),
        (json.dumps(GOOD | {"slope": "3"}), "'3' is not a number"),
        (json.dumps(GOOD | {"slope": True}), "True is not a number"),
        (json.dumps(GOOD | {"slope": math.nan}), "must be finite"),
        (json.dumps(GOOD | {"bias": math.inf}), "must be finite"),
        (json.dumps(GOOD | {"bias": None}), "None is not a number"),
        (json.dumps(GOOD | {"bias": 10**400}), "too large"),
        (json.dumps(GOOD | {"num_positions": 1.5}), "num_positions must be an integer"),
        (json.dumps(GOOD | {"num_positions": -1}), "must not be negative"),
        (json.dumps({k: v for k, v in GOOD.items() if k != "slope"}), "None is not a number"),
    ],
)
def test_file_that_is_no_calibration_is_refused(text, complaint):
    with pytest.raises(ValueError, match=complaint):
        Calibration.from_json(text)


def test_reliability_by_hand():
    told = reliability([0.0, 0.1, 0.5, 0.75, 1.0, 1.0], [False, True, True, False, True, True], 2)
    low, high = told.bins
    assert (low.lower, low.upper, low.count) == (0, 0.5, 3)
    assert (low.mean_score, low.agreed) == pytest.approx((0.2, 2 / 3))
    assert (high.lower, high.upper, high.count) == (0.5, 1, 3)
    assert (high.mean_score, high.agreed) == pytest.approx((2.75 / 3, 2 / 3))
    assert told.ece == pytest.approx((2 / 3 - 0.2) / 2 + (0.25) / 2)


@given(
    st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=100),
    st.integers(1, 20),
)
def test_every_score_is_in_the_bin_that_holds_it(pairs, num_bins):
    scores, agreed = zip(*pairs, strict=True)
    told = reliability(scores, agreed, num_bins)
    assert sum(each.count for each in told.bins) == len(pairs)
    assert [each.lower for each in told.bins] == sorted({each.lower for each in told.bins})
    for each in told.bins:
        assert each.count
        assert each.lower - 1e-9 <= each.mean_score <= each.upper + 1e-9
    assert 0 <= told.ece <= 1


@pytest.mark.parametrize(
    ("scores", "agreed", "num_bins"),
    [
        ([], [], 10),
        ([0.5], [True, False], 10),
        ([1.1], [True], 10),
        ([-0.1], [True], 10),
        ([math.nan], [True], 10),
        ([0.5], [True], 0),
    ],
)
def test_scores_that_are_no_probabilities_are_refused(scores, agreed, num_bins):
    with pytest.raises(ValueError, match=r"must be"):
        reliability(scores, agreed, num_bins)
