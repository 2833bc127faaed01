"""The differences of logits that the benchmark of divided forwards accepts."""

import numpy as np
import pytest

from specmesh.bench.hcmp.exact import LIMIT, Exactness, larger


def test_logits_that_are_no_numbers_are_a_difference_whenever_they_come():
    plain = np.zeros((2, 3), np.float32)
    broken = plain.copy()
    broken[1, 2] = np.nan
    difference = larger(0.0, broken, plain)
    assert not Exactness(1, 1, difference).holds
    assert not Exactness(2, 1, larger(difference, plain, plain)).holds


@pytest.mark.parametrize("off", [LIMIT / 2, LIMIT * 2])
def test_the_largest_difference_of_all_trees_counts(off):
    plain = np.zeros((2, 3), np.float32)
    found = larger(larger(0.0, plain + off, plain), plain, plain)
    assert found == pytest.approx(off)
    assert Exactness(2, 1, found).holds == (off < LIMIT)
