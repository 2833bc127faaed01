"""Log-probabilities of a verdict's tokens."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from specmesh.decoding.logprobs import logprobs_along, logprobs_at
from specmesh.decoding.trees.tree import TokenTree

LOGITS = np.random.default_rng(3).normal(scale=6, size=(5, 300)).astype(np.float32)


def test_they_are_the_log_softmax_in_float32():
    for row in LOGITS:
        expected = torch.log_softmax(torch.tensor(row), dim=0)
        given = logprobs_at(row, 7, 300)
        assert given.logprob == pytest.approx(float(expected[7]), abs=1e-5)
        assert list(given.top_logprobs) == pytest.approx(
            expected[list(given.top_token_ids)].tolist(), abs=1e-5
        )
        assert given.logprob == np.float32(given.logprob)
        assert sum(map(math.exp, given.top_logprobs)) == pytest.approx(1, abs=1e-5)


def test_the_likeliest_come_best_first_and_the_lower_id_on_ties():
    row = np.array([1, 5, 5, 9, 5], np.float32)
    given = logprobs_at(row, 0, 3)
    assert given.top_token_ids == (3, 1, 2)
    assert given.top_logprobs[1] == given.top_logprobs[2] < given.top_logprobs[0]


def test_none_of_the_likeliest_are_told_unless_asked_for():
    assert logprobs_at(LOGITS[0], 4, 0).top_token_ids == ()


def test_what_is_impossible_is_not_among_the_likeliest():
    row = np.full(10, -np.inf, np.float32)
    row[[2, 8]] = 0
    given = logprobs_at(row, 8, 5)
    assert given.top_token_ids == (2, 8)
    assert given.logprob == pytest.approx(math.log(0.5))


def test_certainty_is_never_above_0():
    row = np.full(10, -1e30, np.float32)
    row[3] = 1e30
    given = logprobs_at(row, 3, 2)
    assert given.logprob == given.top_logprobs[0] == 0
    assert math.isfinite(given.top_logprobs[1])


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_logits_that_have_overflowed_are_refused(value: float):
    row = LOGITS[0].copy()
    row[5] = value
    with pytest.raises(FloatingPointError):
        logprobs_at(row, 0, 1)


def test_each_token_of_a_path_has_those_of_the_node_before_it():
    tree = TokenTree((10, 11, 12, 13), (0, 0, 2, 3))
    given = logprobs_along(tree, LOGITS, (2, 3), 40, 2)
    assert given == (
        logprobs_at(LOGITS[0], 11, 2),
        logprobs_at(LOGITS[2], 12, 2),
        logprobs_at(LOGITS[3], 40, 2),
    )
