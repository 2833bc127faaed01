"""Likeliest tokens, nucleus and sums of large rows against full sorts in float64."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specmesh.decoding.logits_row import SMALL, LogitsRow
from specmesh.decoding.nucleus import nucleus

SIZES = [7, SMALL, SMALL + 1, 32_768, 70_000]


def rows(size):
    rng = np.random.default_rng(size)
    return {
        "flat": np.zeros(size, np.float32),
        "normal": (3 * rng.normal(size=size)).astype(np.float32),
        "nearly flat": (0.1 * rng.normal(size=size)).astype(np.float32),
        "peaked": (-1.5 * np.log(1 + rng.permutation(size))).astype(np.float32),
        "few levels": rng.integers(-9, 3, size).astype(np.float32),
        "masked": np.where(rng.random(size) < 0.9, -np.inf, rng.normal(size=size) * 2).astype(
            np.float32
        ),
    }


def weights(row, temperature):
    return np.exp((row.astype(np.float64) - float(row.max())) / temperature)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("count", [1, 8, 64, 700, 50_000])
def test_likeliest_rank_like_a_full_sort(size, count):
    for row in rows(size).values():
        expected = np.argsort(-row, kind="stable")
        expected = expected[row[expected] > -np.inf][:count]
        assert LogitsRow(row, 1.0).likeliest(count).tolist() == expected.tolist()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("top_p", [0.01, 0.5, 0.95, 0.999, 1 - 2**-24])
@pytest.mark.parametrize("temperature", [0.3, 1.0, 3.0])
def test_nucleus_is_the_shortest_part_of_a_full_sort(size, top_p, temperature):
    for row in rows(size).values():
        found = nucleus(LogitsRow(row, temperature), top_p).token_ids
        order = np.argsort(-row, kind="stable")
        mass = weights(row[order], temperature).cumsum()
        # Where the mass meets top_p to the last bits, rounding may decide either way.
        least, most = mass.searchsorted(top_p * mass[-1] * np.array([1 - 1e-12, 1 + 1e-12])) + 1
        assert least <= found.size <= most
        assert found.tolist() == np.sort(order[: found.size]).tolist()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("temperature", [0.01, 0.3, 1.0, 30.0])
def test_sums_are_as_exact_as_they_say(size, temperature):
    for row in rows(size).values():
        exact = math.fsum(weights(row, temperature))
        assert LogitsRow(row, temperature).total == pytest.approx(exact, rel=1e-13)
        assert LogitsRow(row, temperature).rough_total == pytest.approx(exact, rel=1e-5)
        p = weights(row, temperature) / exact
        entropy = -math.fsum(p[p > 0] * np.log(p[p > 0]))
        total, found = LogitsRow(row, temperature).total_and_entropy()
        assert total == pytest.approx(exact, rel=1e-5)
        assert found == pytest.approx(entropy, rel=1e-4, abs=1e-4)


def test_a_sum_in_float32_decides_only_what_it_can():
    row = rows(30_000)["normal"]
    exact = LogitsRow(row, 1.0)
    for token in exact.likeliest(20):
        share = float(np.exp(exact.log_weights(np.array([token])))[0]) / exact.total
        for nudge, expected in ((1 - 1e-9, True), (1 + 1e-9, False), (0.9, True), (1.1, False)):
            assert LogitsRow(row, 1.0).outweighs(token, share * nudge) is expected


@settings(deadline=None, max_examples=20)
@given(st.sampled_from(SIZES), st.lists(st.integers(0, 6), min_size=1, unique=True))
def test_tokens_taken_out_have_no_weight(size, taken):
    row = rows(size)["normal"]
    left = LogitsRow(row, 1.0).without(np.array(taken))
    expected = weights(row, 1.0)
    expected[taken] = 0
    assert np.exp(left.log_weights(np.arange(7))).tolist() == pytest.approx(expected[:7].tolist())
    assert left.total == pytest.approx(math.fsum(expected))


@pytest.mark.parametrize("size", SIZES)
def test_tokens_that_were_not_kept_have_no_weight(size):
    row = rows(size)["normal"]
    whole = LogitsRow(row, 1.0)
    kept = whole.top_k(5)
    assert kept.token_ids.tolist() == sorted(whole.likeliest(5).tolist())
    found = np.exp(kept.log_weights(np.arange(size)))
    expected = np.where(np.isin(np.arange(size), kept.token_ids), weights(row, 1.0), 0)
    assert found.tolist() == pytest.approx(expected.tolist())


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_broken_rows_are_refused(size, bad):
    row = rows(size)["normal"]
    row[size // 2] = bad
    with pytest.raises(FloatingPointError):
        LogitsRow(row, 1.0)
    with pytest.raises(FloatingPointError):
        LogitsRow(np.full(size, -np.inf, np.float32), 1.0)
