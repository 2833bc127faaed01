"""Warping against a slow obvious reference, and the target's choice of a token."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specmesh.decoding.errors import InvalidField
from specmesh.decoding.maxima import likeliest
from specmesh.decoding.noise import Purpose, gumbel
from specmesh.decoding.sampling import AcceptanceMode, Sampling, choose, warp

# A coarse grid makes ties likely.
LOGITS = st.lists(
    st.one_of(st.integers(-12, 12).map(lambda n: n / 4), st.just(-math.inf)),
    min_size=1,
    max_size=40,
).filter(lambda row: max(row) > -math.inf)
WARPS = st.builds(
    Sampling,
    temperature=st.floats(0.1, 5),
    top_k=st.integers(0, 45),
    top_p=st.one_of(st.just(1.0), st.floats(0.01, 1)),
    seed=st.integers(0, 2**64 - 1),
)
WRONG = [
    *(("temperature", bad) for bad in (-0.1, 100.1, math.nan, math.inf, -math.inf)),
    *(("top_p", bad) for bad in (0.0, -0.5, 1.5, math.nan, math.inf, 1e-46)),
    *(("min_p", bad) for bad in (-0.1, 1.1, math.nan)),
    *(("typical_p", bad) for bad in (0.0, -0.5, 1.5, math.nan)),
    *(("repetition_penalty", bad) for bad in (0.0, 0.005, -1.0, 100.1, math.nan, math.inf)),
    *(("presence_penalty", bad) for bad in (-2.1, 2.1, math.nan)),
    *(("frequency_penalty", bad) for bad in (-2.1, 2.1, math.nan)),
]
"""Values that requests can hold and that are refused, here and where a request comes in."""


def float32(row):
    return np.array(row, dtype=np.float32)


def reference_warp(row, sampling):
    """Token -> probability, by full sorts and plain loops."""
    weights = {
        token: math.exp((logit - max(row)) / sampling.temperature)
        for token, logit in enumerate(row)
    }
    ranked = sorted((t for t in weights if weights[t] > 0), key=lambda t: (-row[t], t))
    if sampling.top_k:
        ranked = ranked[: sampling.top_k]
    total = sum(weights[token] for token in ranked)
    kept, mass = [], 0.0
    for token in ranked:
        if sampling.top_p < 1 and mass >= sampling.top_p:
            break
        kept.append(token)
        mass += weights[token] / total
    total = sum(weights[token] for token in kept)
    return {token: weights[token] / total for token in sorted(kept)}


@settings(deadline=None)
@given(LOGITS, WARPS)
def test_warping_equals_the_obvious_reference(row, sampling):
    # Where the mass meets top_p to the last bits, rounding may decide either way.
    wider, narrower = (
        reference_warp(row, Sampling(sampling.temperature, sampling.top_k, top_p))
        for top_p in (min(1, sampling.top_p + 1e-6), max(1e-9, sampling.top_p - 1e-6))
    )
    expected = reference_warp(row, sampling)
    found = warp(float32(row), sampling)
    assert set(narrower) <= set(found.token_ids.tolist()) <= set(wider)
    if set(narrower) == set(wider):
        assert found.token_ids.tolist() == list(expected)
        assert found.probabilities.tolist() == pytest.approx(list(expected.values()))
    assert found.probabilities.sum() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("top_p", [0.5, 0.9, 0.999])
def test_nucleus_is_found_in_a_large_vocabulary(top_p):
    row = (np.random.default_rng(0).normal(size=4096)).astype(np.float32)
    found = warp(row, Sampling(top_p=top_p))
    assert found.token_ids.tolist() == list(reference_warp(row.tolist(), Sampling(top_p=top_p)))


def test_top_k_and_top_p_break_ties_towards_the_lower_id():
    level = float32([1, 1, 1, 1])
    assert warp(level, Sampling(top_k=2)).token_ids.tolist() == [0, 1]
    assert warp(level, Sampling(top_p=0.6)).token_ids.tolist() == [0, 1, 2]


def test_top_p_is_taken_of_what_top_k_leaves():
    row = np.log(float32([0.4, 0.3, 0.2, 0.1]))
    # 0.4 / 0.7 falls short of 0.6; of the whole, three tokens would be needed for 0.75.
    assert warp(row, Sampling(top_k=2, top_p=0.6)).token_ids.tolist() == [0, 1]
    assert warp(row, Sampling(top_k=2, top_p=0.5)).token_ids.tolist() == [0]
    assert warp(row, Sampling(top_p=0.75)).token_ids.tolist() == [0, 1, 2]


def test_impossible_tokens_are_left_out():
    row = float32([0, -np.inf, 0, -1e4])
    assert warp(row, Sampling()).token_ids.tolist() == [0, 2]
    assert warp(row, Sampling(top_k=3)).token_ids.tolist() == [0, 2]


def test_low_temperatures_reach_greedy_without_overflow():
    row = float32([1, 3e38, 2, -3e38])
    assert warp(row, Sampling(temperature=1e-45)).token_ids.tolist() == [1]
    assert choose(row, Sampling(temperature=1e-45), 0) == 1
    assert warp(row, Sampling(temperature=0)).probabilities.tolist() == [1.0]


@pytest.mark.parametrize("bad", [[0, np.nan], [-np.inf, -np.inf], [0, np.inf]])
@pytest.mark.parametrize("temperature", [0, 1])
def test_broken_logits_are_refused(bad, temperature):
    sampling = Sampling(temperature=temperature)
    with pytest.raises(FloatingPointError):
        warp(float32(bad), sampling)
    with pytest.raises(FloatingPointError):
        choose(float32(bad), sampling, 0)


@settings(deadline=None)
@given(LOGITS, st.integers(1, 45))
def test_likeliest_ranks_like_a_full_sort(row, count):
    ranked = sorted(range(len(row)), key=lambda token: (-row[token], token))
    assert likeliest(float32(row), count).tolist() == ranked[:count]


@settings(deadline=None)
@given(LOGITS, WARPS, st.integers(0, 1000))
def test_coupled_choice_is_the_argmax_of_log_probability_plus_noise(row, sampling, position):
    warped = warp(float32(row), sampling)
    noise = gumbel(sampling.seed, position, Purpose.COUPLED, warped.token_ids)
    best = warped.token_ids[np.argmax(np.log(warped.probabilities) + noise)]
    assert choose(float32(row), sampling, position) == best


def test_coupled_choice_follows_the_distribution():
    row = np.log(float32([0.5, 0.3, 0.15, 0.05]))
    drawn = [choose(row, Sampling(seed=3), position) for position in range(20_000)]
    shares = np.bincount(drawn, minlength=4) / len(drawn)
    # 5 standard errors of the largest share.
    assert np.abs(shares - [0.5, 0.3, 0.15, 0.05]).max() < 5 * 0.5 / np.sqrt(len(drawn))


def test_greedy_takes_the_lowest_id_on_ties():
    assert choose(float32([0, 2, 2]), Sampling(temperature=0), 7) == 1


def test_rejection_has_no_choice_without_the_draft():
    with pytest.raises(ValueError, match="depends on the draft"):
        choose(float32([0, 1]), Sampling(mode=AcceptanceMode.REJECTION), 0)


def test_temperature_0_and_greedy_are_one():
    cold = Sampling(temperature=0, mode=AcceptanceMode.REJECTION)
    assert cold.mode is AcceptanceMode.GREEDY
    assert Sampling(mode=AcceptanceMode.GREEDY) == Sampling(temperature=0)


def test_parameters_are_those_that_travel():
    sampling = Sampling(temperature=0.7, top_p=0.9)
    assert sampling.temperature == float(np.float32(0.7))
    assert Sampling(temperature=sampling.temperature, top_p=sampling.top_p) == sampling


@pytest.mark.parametrize(("field", "value"), [*WRONG, ("top_k", -1), ("seed", -1), ("seed", 2**64)])
def test_wrong_parameter_is_refused_by_name(field, value):
    with pytest.raises(InvalidField) as refusal:
        Sampling(**{field: value})
    assert refusal.value.field == field
