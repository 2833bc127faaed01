"""Tokens chosen by compiled code, against the dense form of the race and against numpy."""

import ctypes
from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.decoding.test_race import SHAPES, dense_scores, logits_of

from specmesh.decoding.compiled import choice as compiled
from specmesh.decoding.compiled import compilation, functions
from specmesh.decoding.noise import TILE_IDS, Purpose, stream_key
from specmesh.decoding.sampling import Sampling, choose
from specmesh.inference.team import team_for

SIZES = [1, 511, 513, 4_096, 4_097, TILE_IDS - 1, TILE_IDS, TILE_IDS + 1, 70_000, 151_936]


@pytest.fixture(autouse=True, scope="module")
def prepared():
    compiled.prepare(team_for)


@pytest.fixture
def threads():
    """Sets the number of threads of a forward pass for a test."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def found(row, temperature, seed, position):
    if not compiled.suits(row):
        return None
    return compiled.find_token(row, temperature, stream_key(seed, position, Purpose.COUPLED))


def found_at_once(rows, temperatures, keys):
    """The tokens of all ``rows``, which must not be copies of what is passed over."""
    where = rows.ctypes.data, rows.strides[0]
    return compiled.find_tokens(
        [
            compiled.RowAt(where[0] + number * where[1], temperature, key)
            for number, (temperature, key) in enumerate(zip(temperatures, keys, strict=True))
        ],
        rows.shape[1],
    )


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


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("num_threads", [1, 3])
def test_rows_are_found_at_once_as_one_by_one(size, num_threads, threads):
    threads(num_threads)
    rows = np.array([logits_of(shape, size, 3) for shape in sorted(SHAPES) * 2])
    keys = [stream_key(2**64 - 1, each, Purpose.COUPLED) for each in range(len(rows))]
    temperatures = [0.0, 0.8, 1.5] * len(rows)
    expected = [
        compiled.find_token(row, temperature, key) if temperature else row.argmax()
        for row, temperature, key in zip(rows, temperatures, keys, strict=False)
    ]
    assert found_at_once(rows, temperatures[: len(rows)], keys) == expected


@pytest.mark.parametrize("size", SIZES)
def test_the_lowest_of_the_likeliest_tokens_is_found(size):
    rng = np.random.default_rng(size)
    rows = rng.integers(-3, 3, (20, size)).astype(np.float32)
    rows[rng.random(rows.shape) < 0.5] = -np.inf
    rows[:, size // 2] = -2.0  # so that each has a finite logit
    assert found_at_once(rows, [0.0] * 20, [0] * 20) == rows.argmax(axis=1).tolist()


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("size", [1, 600, 70_000])
def test_only_broken_rows_among_several_are_left_to_numpy(size, bad, temperature):
    rows = np.array([logits_of("normal", size)] * 4)
    for number, place in enumerate((0, size // 2, size - 1)):
        rows[number, place] = bad
    *broken, whole = found_at_once(rows, [temperature] * 4, [5] * 4)
    assert broken == [None] * 3
    assert whole is not None
    rows[:] = -np.inf
    assert found_at_once(rows, [temperature] * 4, [5] * 4) == [None] * 4


def test_several_threads_find_tokens_at_the_same_time():
    rows = np.array([logits_of("normal", 70_000, seed) for seed in range(8)])
    keys = list(range(8))
    expected = [compiled.find_token(row, 0.8, key) for row, key in zip(rows, keys, strict=True)]
    with ThreadPoolExecutor(4) as pool:
        told = pool.map(lambda _: found_at_once(rows, [0.8] * 8, keys), range(40))
        assert list(told) == [expected] * 40


@pytest.mark.parametrize("error", [RuntimeError, OSError, EOFError])
def test_code_is_compiled_anew_where_the_disk_does_not_have_or_keep_it(monkeypatch, error):
    def without_disk(signature, *, cache=False, **options):
        if cache:
            raise error
        return compile_for(signature, **options)

    compile_for = numba.cfunc
    monkeypatch.setattr(numba, "cfunc", without_disk)
    doubling = compilation.compiled(double, [])
    table = (ctypes.c_int64 * 1)(4)
    ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(doubling.address)(table)
    assert table[0] == 8


def test_compiling_is_told_of_unless_the_code_is_on_the_disk(monkeypatch, tmp_path):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    told = []
    for num_told in (1, 1):
        compilation.compiled(double, [], tell=lambda: told.append(True))
        assert len(told) == num_told


def double(table):
    table[0] *= 2


def test_machine_code_is_kept_under_a_name_of_all_it_is_made_of(tmp_path, monkeypatch):
    def multiplying_by(factor):
        def multiply(table):
            table[0] *= factor

        return multiply

    source = tmp_path / "noise.py"
    source.write_text("GOLDEN_GAMMA = 0")
    names = [compilation.code_name(multiplying_by(factor), [source]) for factor in (2, 3, 2)]
    source.write_text("GOLDEN_GAMMA = 1")
    names.append(compilation.code_name(multiplying_by(2), [source]))
    monkeypatch.setattr(numba, "__version__", "0.1")
    names.append(compilation.code_name(multiplying_by(2), [source]))
    assert names[2] == names[0]
    assert len(set(names)) == 4
    kept = compilation.compiled(multiplying_by(2), [source])._cache._impl._filename_base
    assert names[4] in kept


def test_code_is_made_of_all_files_of_its_package():
    assert {path.name for path in functions._files()} >= {"noise.py", "race_kernel.py", "table.py"}
