"""The search for the highest rate ends near it, whatever it begins with."""

import pytest

from specmesh.load.runs.bisection import Bisection


def found(first_rate, highest, within=0.05):
    search = Bisection(first_rate, within)
    tried = []
    while (rate := search.next_rate) is not None:
        tried.append(rate)
        search.tried(rate, met=rate <= highest)
    return search, tried


@pytest.mark.parametrize("first_rate", [0.5, 10.0, 37.0, 300.0])
def test_it_ends_with_a_rate_that_is_met_and_one_that_is_not_close_together(first_rate):
    search, tried = found(first_rate, 37.3)
    assert search.highest_met <= 37.3 < search.lowest_missed
    assert search.lowest_missed <= search.highest_met * 1.05 * (1 + 1e-9)
    assert len(tried) < 16
    assert len(tried) == len(set(tried))


def test_it_gives_up_where_no_rate_is_low_enough():
    search, tried = found(1.0, 0.0)
    assert search.highest_met is None
    assert min(tried) >= 1 / 64
