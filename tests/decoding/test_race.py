"""The race against its dense form: the noise of the whole vocabulary, added up and sorted."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specmesh.decoding.compiled import choice as compiled
from specmesh.decoding.logits_row import SMALL, LogitsRow
from specmesh.decoding.noise import Purpose, gumbel
from specmesh.decoding.race import Race, winner
from specmesh.decoding.sampling import Sampling, choose
from specmesh.inference.team import team_for

SIZES = [1, 5, 513, SMALL, SMALL + 1, 32_768, 70_000]


def peaked(rng, size):
    return -1.5 * np.log(1 + rng.permutation(size))


SHAPES = {
    "flat": lambda rng, size: np.zeros(size),
    "normal": lambda rng, size: 3 * rng.normal(size=size),
    "peaked": peaked,
    "masked": lambda rng, size: np.where(rng.random(size) < 0.999, -np.inf, peaked(rng, size)),
    "few levels": lambda rng, size: rng.integers(-3, 3, size),
    "high": lambda rng, size: 3e6 + rng.normal(size=size),
    "by rank": lambda rng, size: rng.normal(size=size) - 0.5 * np.log1p(np.arange(size)),
    "one": lambda rng, size: np.where(np.arange(size) == size // 2, 0, -np.inf),
}


def logits_of(shape, size, seed=0):
    row = SHAPES[shape](np.random.default_rng(seed), size).astype(np.float32)
    row[0] = max(row.max(), 0)
    return row


def dense_scores(row, temperature, seed, position):
    noise = gumbel(seed, position, Purpose.COUPLED, np.arange(row.size))
    return (row.astype(np.float64) - float(row.max())) / temperature + noise


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("count", [1, 3, 64])
def test_race_finds_what_the_dense_form_finds_with_the_same_scores(shape, size, count):
    row = logits_of(shape, size)
    for position, temperature in enumerate((1e-30, 1e-6, 0.05, 0.8, 5.0)):
        race = Race(LogitsRow(row, temperature), 9, position, Purpose.COUPLED, count)
        scores = dense_scores(row, temperature, 9, position)
        expected = np.argsort(-scores, kind="stable")[: min(count, np.isfinite(scores).sum())]
        assert race.token_ids.tolist() == expected.tolist()
        assert race.scores.tolist() == scores[expected].tolist()


@pytest.fixture(params=["numpy", "compiled"])
def search(request, monkeypatch):
    """The way in which winners are found."""
    if request.param == "compiled":
        compiled.prepare(team_for)
    else:
        monkeypatch.setattr(compiled, "_functions", None)


@pytest.mark.usefixtures("search")
@pytest.mark.parametrize("size", [1, 5, 513, 2_048, 2_049, 4_096, SMALL - 1, SMALL, 70_000])
@pytest.mark.parametrize("shape", SHAPES)
def test_winner_is_the_best_of_the_dense_form(shape, size):
    row = logits_of(shape, size)
    for position, temperature in enumerate((1e-30, 1e-6, 0.05, 0.8, 5.0, 5.0, 5.0)):
        whole = LogitsRow(row, temperature)
        scores = dense_scores(row, temperature, 9, position)
        assert winner(whole, 9, position, Purpose.COUPLED) == scores.argmax()
        some = whole.top_k(40)
        best = some.token_ids[scores[some.token_ids].argmax()]
        assert winner(some, 9, position, Purpose.COUPLED) == best


@pytest.mark.usefixtures("search")
def test_winner_of_a_row_without_its_likeliest_tokens_is_found():
    row = np.full(20_000, -100, np.float32)
    row[[7, 9]] = 0, -50
    rest = LogitsRow(row, 0.8).without(np.array([7]))
    assert winner(rest, 1, 2, Purpose.RESIDUAL) == 9


def test_noise_of_tokens_that_are_too_unlikely_is_not_computed(monkeypatch):
    monkeypatch.setattr(compiled, "_functions", None)
    monkeypatch.delattr("specmesh.decoding.race.BlockNoise")
    row = logits_of("peaked", 70_000)
    scores = dense_scores(row, 0.02, 9, 3)
    assert winner(LogitsRow(row, 0.02), 9, 3, Purpose.COUPLED) == scores.argmax()


@settings(deadline=None, max_examples=50)
@given(
    st.integers(1, 70_000),
    st.sampled_from(list(SHAPES)),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**20),
    st.floats(2**-10, 100, width=32),
    st.integers(1, 600),
)
def test_any_race_equals_its_dense_form(size, shape, seed, position, temperature, count):
    row = logits_of(shape, size, seed)
    race = Race(LogitsRow(row, temperature), seed, position, Purpose.COUPLED, count)
    scores = dense_scores(row, temperature, seed, position)
    expected = np.argsort(-scores, kind="stable")[: min(count, np.isfinite(scores).sum())]
    assert race.token_ids.tolist() == expected.tolist()


@pytest.mark.usefixtures("search")
@pytest.mark.parametrize("size", [4096, 20_000, 40_000])
@pytest.mark.parametrize("settings", [{}, {"top_k": 50}, {"top_p": 0.9}])
def test_padding_of_a_vocabulary_changes_no_token(size, settings):
    row = logits_of("normal", size)
    padded = np.append(row, np.full(SMALL, -np.inf, np.float32))
    for position in range(20):
        sampling = Sampling(0.8, seed=4, **settings)
        assert choose(row, sampling, position) == choose(padded, sampling, position)


@pytest.mark.usefixtures("search")
def test_tokens_are_drawn_in_proportion_from_a_large_vocabulary():
    row = np.full(20_000, -np.inf, np.float32)
    tokens, shares = [3, 515, 9_000, 19_999], np.array([0.5, 0.3, 0.15, 0.05])
    row[tokens] = np.log(shares)
    drawn = [choose(row, Sampling(seed=3), position) for position in range(4_000)]
    found = np.array([drawn.count(token) for token in tokens]) / len(drawn)
    assert np.abs(found - shares).max() < 5 * 0.5 / math.sqrt(len(drawn))


@pytest.mark.parametrize("shape", ["flat", "normal", "peaked", "masked", "by rank"])
@pytest.mark.parametrize("size", [SMALL, 20_000, 70_000, 150_000])
def test_softmax_of_the_scores_is_nearly_that_of_the_dense_form(shape, size):
    ratios, excess = [], []
    for position in range(25):
        row = logits_of(shape, size, position)
        race = Race(LogitsRow(row, 1.0), 2, position, Purpose.COUPLED, 8)
        probabilities, entropy = race.softmax()
        scores = dense_scores(row, 1.0, 2, position)
        exact = np.exp(scores - scores.max())
        exact /= exact.sum()
        ratios += (probabilities / exact[race.token_ids]).tolist()
        excess.append(entropy + (exact[exact > 0] * np.log(exact[exact > 0])).sum())
    assert np.abs(np.array(ratios) - 1).max() < 0.06
    assert abs(np.mean(ratios) - 1) < 0.01
    assert np.abs(excess).max() < 0.25
    assert abs(np.mean(excess)) < 0.1
