"""The forwards that a replica times at its start."""

from __future__ import annotations

import pytest

from specmesh.decoding.predict.forward_times import LONGEST_S, time_forwards


def test_their_sizes_double_up_to_the_largest():
    timed = time_forwards(lambda rows: rows / 1e6, most_rows=20)
    assert timed == [(rows, rows / 1e6) for rows in (1, 2, 4, 8, 16)]


def test_after_a_long_one_there_is_no_larger_one():
    timed = time_forwards(lambda rows: 0.03 * rows, most_rows=64)
    assert [rows for rows, _ in timed] == [1, 2, 4]
    assert timed[-1][1] > LONGEST_S


@pytest.mark.parametrize(("most_rows", "num_timed"), [(0, 0), (1, 1), (64, 2)])
def test_a_slow_replica_times_two_all_the_same_if_they_fit(most_rows, num_timed):
    assert len(time_forwards(lambda rows: 10.0 * rows, most_rows)) == num_timed
