"""Likeliest tokens, nucleus and sums of large rows against full sorts in float64."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specmesh.decoding.logits_row import SMALL, LogitsRow
from specmesh.decoding.maxima import Maxima
from specmesh.decoding.processing.nucleus import is_surely_in_nucleus, nucleus

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


@pytest.mark.parametrize("row", [rows(70_000)["flat"], rows(70_000)["few levels"]])
def test_only_the_lowest_of_many_tied_tokens_are_ranked(row):
    row[77] = 9
    near = Maxima(row).highest(5)
    assert near.tolist() == sorted({77, *np.flatnonzero(row == np.sort(row)[-2])[:5]})


@pytest.mark.parametrize("size", SIZES)
def test_the_likeliest_have_their_weights_whether_their_neighbours_are_known_or_not(size):
    for row in rows(size).values():
        for left in (LogitsRow(row, 0.7), LogitsRow(row, 0.7).top_k(100)):
            expected = left.likeliest(8)
            for near in (None, left.likely(20)):
                found, weighed = left.likeliest_with_weights(8, near)
                assert found.tolist() == expected.tolist()
                assert weighed.tolist() == pytest.approx(weights(row, 0.7)[expected].tolist())


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


def kinds(size, seed):
    rng = np.random.default_rng(seed)
    two_peaks = rng.normal(size=size)
    two_peaks[rng.integers(0, size, 2)] = 14
    found = {
        "steep": -8 * np.log1p(rng.permutation(size)),
        "zipf": 0.3 * rng.normal(size=size) - 1.2 * np.log1p(rng.permutation(size)),
        "by rank": rng.normal(size=size) - 0.5 * np.log1p(np.arange(size)),
        "two peaks": two_peaks,
        "plateaus": 8.0 * (rng.random(size) < 0.002) + 7 * (rng.random(size) < 0.02),
    }
    return rows(size) | {name: row.astype(np.float32) for name, row in found.items()}


@pytest.mark.parametrize("size", [SMALL + 1, 20_000, 151_936])
@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.5])
def test_estimates_are_as_near_as_they_say(size, temperature):
    errors = []
    for seed in range(5):
        for row in kinds(size, seed).values():
            p = weights(row, temperature)
            exact = p.sum()
            p /= exact
            entropy = -(p[p > 0] * np.log(p[p > 0])).sum()
            whole = LogitsRow(row, temperature)
            total, found = whole.estimate(whole.likely(256))
            errors.append(abs(total / exact - 1))
            assert found == pytest.approx(entropy, abs=0.2)
    assert max(errors) < 0.1
    assert np.mean(np.array(errors) < 0.03) > 0.8


@pytest.mark.parametrize("size", [SMALL, 20_000, 151_936])
@pytest.mark.parametrize("top_p", [0.5, 0.95])
def test_guessed_nucleus_is_a_set_of_likeliest_tokens_with_nearly_the_share(size, top_p):
    for row in kinds(size, 1).values():
        guessed = nucleus(LogitsRow(row, 0.8), top_p, guessed=True).token_ids
        order = np.argsort(-row, kind="stable")
        assert guessed.tolist() == np.sort(order[: guessed.size]).tolist()
        mass = weights(row[order], 0.8).cumsum()
        mass /= mass[-1]
        least, most = mass.searchsorted([0.93 * top_p, min(1, 1.07 * top_p)]) + 1
        assert least <= guessed.size <= most


@pytest.mark.parametrize("size", [SMALL + 1, 20_000, 151_936])
@pytest.mark.parametrize("top_p", [0.1, 0.5, 0.95])
def test_tokens_said_to_be_in_the_nucleus_are(size, top_p):
    for name, row in kinds(size, 2).items():
        whole = LogitsRow(row, 0.8)
        kept = set(nucleus(whole, top_p).token_ids.tolist())
        likeliest = whole.likeliest(300).tolist()
        sure = {token for token in likeliest if is_surely_in_nucleus(whole, token, top_p)}
        assert sure <= kept
        if name == "zipf":
            assert likeliest[0] in sure
            missed = sum(np.exp(whole.log_weights(np.array(sorted(kept - sure), np.int64))))
            assert missed < 0.1 * whole.total


def test_nucleus_of_a_steep_row_takes_no_sum_in_float64(monkeypatch):
    monkeypatch.delattr(LogitsRow, "total")
    for seed in range(20):
        row = kinds(40_000, seed)["zipf"]
        order = np.argsort(-row, kind="stable")
        found = nucleus(LogitsRow(row, 0.8), 0.95).token_ids
        assert found.tolist() == np.sort(order[: found.size]).tolist()


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
        LogitsRow(row, 1.0).peak  # noqa: B018
    with pytest.raises(FloatingPointError):
        LogitsRow(np.full(size, -np.inf, np.float32), 1.0).peak  # noqa: B018
