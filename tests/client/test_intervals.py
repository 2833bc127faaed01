"""Interval arithmetic against counting points one by one."""

from hypothesis import given
from hypothesis import strategies as st

from specmesh.traces.intervals import length_ms, union, without

INTERVAL = st.tuples(st.integers(0, 30), st.integers(0, 30)).map(lambda pair: tuple(sorted(pair)))


def points(intervals):
    return {point for start, end in intervals for point in range(start, end)}


def assert_disjoint_and_ordered(intervals):
    ends = [end for interval in intervals for end in interval]
    assert ends == sorted(ends)
    assert all(start < end for start, end in intervals)


@given(st.lists(INTERVAL))
def test_union_covers_what_any_of_them_covers(intervals):
    merged = union(intervals)
    assert points(merged) == points(intervals)
    assert_disjoint_and_ordered(merged)
    assert length_ms(merged) == len(points(intervals)) / 1e6


@given(INTERVAL, st.lists(INTERVAL))
def test_without_leaves_what_none_of_them_covers(whole, parts):
    left = without(whole, parts)
    assert points(left) == points([whole]) - points(parts)
    assert_disjoint_and_ordered(left)
