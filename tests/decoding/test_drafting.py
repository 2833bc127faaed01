"""What the drafter draws, and what it says it drew from."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specmesh.decoding.drafting import MAX_CANDIDATES, draw_children, highest_entropy
from specmesh.decoding.noise import Purpose, gumbel
from specmesh.decoding.sampling import AcceptanceMode, Sampling, choose, warp

REJECTION = Sampling(mode=AcceptanceMode.REJECTION)
ROWS = st.builds(
    lambda seed, size: (3 * np.random.default_rng(seed).normal(size=size)).astype(np.float32),
    st.integers(0, 2**32),
    st.integers(1, 300),
)
WARPS = {"temperature": st.floats(0, 5), "top_k": st.integers(0, 20), "top_p": st.floats(0.01, 1)}
RANDOM_WARPS = {**WARPS, "temperature": st.floats(0, 5, exclude_min=True, width=32)}


@settings(deadline=None)
@given(ROWS, st.builds(Sampling, seed=st.integers(0, 2**64 - 1), **WARPS), st.integers(0, 99))
def test_first_child_is_what_the_target_would_choose_of_the_same_logits(row, sampling, position):
    drawn = draw_children(row, sampling, position, 1)
    assert drawn.children == (choose(row, sampling, position),)
    assert drawn.distribution is None
    assert drawn.choices is None


@pytest.mark.parametrize("mode", AcceptanceMode)
def test_more_children_only_add_to_fewer(mode):
    row = np.random.default_rng(5).normal(size=50).astype(np.float32)
    sampling = Sampling(seed=8, mode=mode)
    many = draw_children(row, sampling, 3, 20).children
    assert len(set(many)) == 20
    for count in range(1, 20):
        assert draw_children(row, sampling, 3, count).children == many[:count]


def test_greedy_children_are_the_likeliest():
    row = np.array([0, 3, 1, 3, 2], dtype=np.float32)
    assert draw_children(row, Sampling(temperature=0), 0, 3).children == (1, 3, 4)


@pytest.mark.parametrize("mode", AcceptanceMode)
def test_impossible_tokens_are_never_drafted(mode):
    row = np.array([-np.inf, 0, -np.inf, 1], dtype=np.float32)
    children = draw_children(row, Sampling(mode=mode), 0, 4).children
    assert sorted(children) == [1, 3]


@pytest.mark.parametrize("mode", AcceptanceMode)
def test_broken_logits_are_refused(mode):
    with pytest.raises(FloatingPointError):
        draw_children(np.array([0, np.nan], dtype=np.float32), Sampling(mode=mode), 0, 2)


@settings(deadline=None)
@given(ROWS, st.builds(Sampling, mode=st.just(AcceptanceMode.REJECTION), **RANDOM_WARPS))
def test_draft_distribution_survives_the_wire_bit_for_bit(row, sampling):
    drawn_from = draw_children(row, sampling, 0, 1).distribution
    travelled = drawn_from.probabilities.astype(np.float32).astype(np.float64)
    assert (travelled / travelled.sum()).tolist() == drawn_from.probabilities.tolist()
    assert drawn_from.probabilities.sum() == 1
    assert drawn_from.probabilities.min() > 0
    assert len(drawn_from.token_ids) <= MAX_CANDIDATES
    assert len(set(drawn_from.token_ids.tolist())) == len(drawn_from.token_ids)


@settings(deadline=None)
@given(ROWS)
def test_draft_distribution_keeps_the_likeliest_in_proportion(row):
    warped, kept = warp(row, REJECTION), draw_children(row, REJECTION, 0, 1).distribution
    best = np.sort(np.argsort(-warped.probabilities, kind="stable")[:MAX_CANDIDATES])
    expected = np.zeros(row.size)
    expected[best] = warped.probabilities[best] / warped.probabilities[best].sum()
    found = np.zeros(row.size)
    found[kept.token_ids] = kept.probabilities
    assert found == pytest.approx(expected, abs=MAX_CANDIDATES * 2.0**-24)


def test_children_are_drawn_without_replacement_in_order():
    row = np.log(np.array([0.5, 0.3, 0.15, 0.05], dtype=np.float32))
    probabilities = draw_children(row, REJECTION, 0, 1).distribution.probabilities
    drawn = [draw_children(row, REJECTION, position, 2).children for position in range(20_000)]
    for first, second in itertools.permutations(range(4), 2):
        expected = probabilities[first] * probabilities[second] / (1 - probabilities[first])
        share = drawn.count((first, second)) / len(drawn)
        # 12 shares, each within 5 standard errors.
        assert abs(share - expected) < 5 * math.sqrt(expected / len(drawn))


def test_a_draft_meets_the_target_as_often_as_the_coupling_allows():
    # The shared noise makes both argmaxes i with probability 1 / sum_j max(p_j/p_i, q_j/q_i).
    target_probs, draft_probs = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.3, 0.5])
    ratios = np.maximum(
        target_probs[None] / target_probs[:, None], draft_probs[None] / draft_probs[:, None]
    )
    expected = (1 / ratios.sum(axis=1)).sum()
    target, draft = (np.log(p).astype(np.float32) for p in (target_probs, draft_probs))
    met = sum(
        draw_children(draft, Sampling(seed=2), position, 1).children
        == (choose(target, Sampling(seed=2), position),)
        for position in range(20_000)
    )
    assert abs(met / 20_000 - expected) < 5 * 0.5 / math.sqrt(20_000)


def softmax(scores):
    weights = np.exp(scores - scores.max())
    return weights / weights.sum()


def test_greedy_choices_are_the_likeliest_at_temperature_1():
    row = np.array([0, 3, 1, 3, 2, -np.inf], dtype=np.float32)
    choices = draw_children(row, Sampling(temperature=0), 0, 1, num_choices=3).choices
    assert choices.token_ids == (1, 3, 4)
    np.testing.assert_allclose(choices.probabilities, softmax(row)[[1, 3, 4]], rtol=1e-6)


@settings(deadline=None)
@given(ROWS, st.builds(Sampling, seed=st.integers(0, 2**64 - 1), **WARPS), st.integers(0, 99))
def test_coupled_choices_weigh_the_noise_that_the_target_uses(row, sampling, position):
    sampling = Sampling(
        temperature=sampling.temperature + 0.5, top_k=sampling.top_k, seed=sampling.seed
    )
    drawn = draw_children(row, sampling, position, 2, num_choices=8)
    warped = warp(row, sampling)
    noise = gumbel(sampling.seed, position, Purpose.COUPLED, warped.token_ids)
    scores = np.log(warped.probabilities) + noise
    best = np.argsort(-scores, kind="stable")[:8]
    assert drawn.choices.token_ids == tuple(warped.token_ids[best].tolist())
    np.testing.assert_allclose(drawn.choices.probabilities, softmax(scores)[best], rtol=1e-9)
    assert drawn.children == drawn.choices.token_ids[:2]


def test_rejection_choices_are_the_likeliest_to_be_drawn():
    row = np.log(np.array([0.15, 0.5, 0.05, 0.3], dtype=np.float32))
    sampling = Sampling(top_k=3, mode=AcceptanceMode.REJECTION)
    choices = draw_children(row, sampling, 0, 1, num_choices=16).choices
    assert choices.token_ids == (1, 3, 0)
    np.testing.assert_allclose(choices.probabilities, np.array([0.5, 0.3, 0.15]) / 0.95, rtol=1e-6)


@pytest.mark.parametrize("mode", AcceptanceMode)
def test_children_are_the_same_whether_choices_are_asked_for_or_not(mode):
    row = np.random.default_rng(6).normal(size=300).astype(np.float32)
    for position in range(20):
        sampling = Sampling(seed=8, mode=mode)
        with_choices = draw_children(row, sampling, position, 3, num_choices=5)
        assert with_choices.children == draw_children(row, sampling, position, 3).children
        assert len(with_choices.choices.token_ids) == 5


@pytest.mark.parametrize("mode", AcceptanceMode)
def test_unlikely_choices_keep_a_probability_that_a_float32_can_hold(mode):
    row = np.array([0, -300, -200], dtype=np.float32)
    choices = draw_children(row, Sampling(mode=mode), 0, 1, num_choices=3).choices
    assert choices.token_ids == (0, 2, 1)
    assert (np.array(choices.probabilities, np.float32) > 0).all()


@settings(deadline=None)
@given(ROWS, st.sampled_from(AcceptanceMode), st.integers(0, 20), st.integers(1, 5))
def test_entropy_is_that_of_the_distribution_which_the_choices_are_of(row, mode, top_k, listed):
    sampling = Sampling(temperature=0.7, top_k=top_k, seed=3, mode=mode)
    told = draw_children(row, sampling, 5, 1, num_choices=listed).choices
    everything = draw_children(row, sampling, 5, 1, num_choices=row.size).choices
    p = np.array(everything.probabilities)
    assert told.entropy == everything.entropy
    assert told.entropy == pytest.approx(-(p @ np.log(p)), abs=1e-9)


@pytest.mark.parametrize("mode", AcceptanceMode)
def test_entropy_of_a_certain_token_is_0_and_of_an_even_choice_its_logarithm(mode):
    sampling = Sampling(mode=mode)
    certain = np.array([-np.inf, 0, -np.inf, -2000], dtype=np.float32)
    assert draw_children(certain, sampling, 0, 1, num_choices=2).choices.entropy == 0
    even = np.full(50, 3.0, dtype=np.float32)
    told = draw_children(even, sampling, 0, 1, num_choices=2).choices.entropy
    if mode is AcceptanceMode.COUPLED:  # the noise has made it uneven
        assert 0 < told < math.log(50)
    else:
        assert told == pytest.approx(math.log(50))


@settings(deadline=None)
@given(ROWS, st.integers(1, 5))
def test_no_distribution_has_more_entropy_than_its_choices_allow(row, listed):
    choices = draw_children(row, Sampling(temperature=0), 0, 1, num_choices=listed).choices
    assert choices.entropy <= highest_entropy(choices.probabilities, row.size) + 1e-6


def test_entropy_is_at_its_highest_where_the_rest_is_spread_evenly():
    assert highest_entropy((0.25, 0.25), 4) == pytest.approx(math.log(4))
    assert highest_entropy((0.5, 0.5), 4) == pytest.approx(math.log(2))
    assert highest_entropy((1.0,), 1) == highest_entropy((1.0,), 100) == 0
    assert highest_entropy((0.0, 0.0), 4) == pytest.approx(-math.log(0.5))


@pytest.mark.parametrize("temperature", [0.3, 0.7, 1.0])
def test_a_sure_drafter_of_a_large_vocabulary_has_no_probability_above_1(temperature):
    noise = np.random.default_rng(0)
    for seed in range(40):
        row = (2 * noise.standard_normal(1 << 15)).astype(np.float32)
        row[noise.integers(row.size)] = row.max() + 16
        sampling = Sampling(temperature=temperature, seed=seed)
        choices = draw_children(row, sampling, 3, 1, num_choices=1).choices
        assert choices is not None
        assert 0.9 < np.float32(choices.probabilities[0]) <= 1
        assert choices.entropy >= 0
