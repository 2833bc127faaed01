"""The compiled search for the winner of a race, against the race's dense form."""

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.decoding.test_race import SHAPES, dense_scores, logits_of

from specmesh.decoding.compiled import race_kernel
from specmesh.decoding.compiled import winner as compiled
from specmesh.decoding.noise import TILE_IDS, Purpose, stream_key
from specmesh.decoding.sampling import Sampling, choose

SIZES = [1, 511, 513, 4_096, 4_097, TILE_IDS - 1, TILE_IDS, TILE_IDS + 1, 70_000, 151_936]


@pytest.fixture(autouse=True, scope="module")
def prepared():
    compiled.prepare()


def found(row, temperature, seed, position):
    return compiled.find_winner(row, temperature, stream_key(seed, position, Purpose.COUPLED))


@settings(deadline=None, max_examples=100)
@given(
    st.one_of(st.integers(1, 70_000), st.sampled_from(SIZES)),
    st.sampled_from(list(SHAPES)),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**20),
    st.floats(2**-10, 100, width=32),
)
def test_a_winner_that_is_found_is_the_best_of_the_dense_form(
    size, shape, seed, position, temperature
):
    row = logits_of(shape, size, seed)
    token = found(row, temperature, seed, position)
    scores = dense_scores(row, temperature, seed, position)
    if token is None:
        runner_up, best = np.sort(np.append(scores, -np.inf))[-2:]
        assert best - runner_up < 1e-6
    else:
        assert token == scores.argmax()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("shape", [each for each in SHAPES if each != "few levels"])
def test_the_winner_is_found_wherever_it_is(shape, size):
    for seed in range(20):
        row = logits_of(shape, size, seed)
        assert found(row, 0.8, seed, 3) == dense_scores(row, 0.8, seed, 3).argmax()


def test_scores_that_only_rounding_tells_apart_are_left_to_numpy():
    row = np.zeros(70_000, np.float32)
    row[[5, 60_000]] = 1e20  # to which noise adds nothing that a float64 can hold
    for seed in range(10):
        assert found(row, 0.8, seed, 2) is None
        assert choose(row, Sampling(0.8, seed=seed), 2) == dense_scores(row, 0.8, seed, 2).argmax()


@pytest.mark.parametrize("size", [1, 600, 4_096, 70_000, 151_936])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_broken_row_is_refused_wherever_it_is_broken(size, bad):
    for place in (0, size // 2, size - 1):
        row = logits_of("normal", size)
        row[place] = bad
        assert found(row, 0.8, 1, 2) is None
        with pytest.raises(FloatingPointError):
            choose(row, Sampling(0.8), 2)


def test_a_row_without_any_token_is_refused():
    row = np.full(70_000, -np.inf, np.float32)
    assert found(row, 0.8, 1, 2) is None
    with pytest.raises(FloatingPointError):
        choose(row, Sampling(0.8), 2)


def test_rows_of_other_types_and_layouts_are_left_to_numpy():
    row = logits_of("normal", 10_000)
    locked = row.copy()
    locked.flags.writeable = False
    for other in (row.astype(np.float64), row.astype(np.float16), row[::2], locked):
        assert found(other, 0.8, 1, 2) is None
        choose(other, Sampling(0.8), 2)


@pytest.mark.parametrize("error", [RuntimeError, OSError, EOFError])
def test_code_is_compiled_anew_where_the_disk_does_not_have_or_keep_it(monkeypatch, error):
    def without_disk(signature, *, cache=False, **options):
        if cache:
            raise error
        return jit(signature, **options)

    jit = numba.njit
    monkeypatch.setattr(numba, "njit", without_disk)
    double = race_kernel._compiled_now(numba.int64(numba.int64))(lambda number: 2 * number)
    assert double(4) == 8
