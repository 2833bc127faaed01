"""Which process runs on which cores."""

import os

import pytest

from specmesh.cli.local.cores import Placement, available, place


def placement(verifiers, drafter, rest):
    return Placement(tuple(map(frozenset, verifiers)), frozenset(drafter), frozenset(rest))


@pytest.mark.parametrize(
    ("cores", "num_verifiers", "threads", "expected"),
    [
        ([], 2, 1, placement([[], []], [], [])),
        ([3], 1, 1, placement([[3]], [3], [3])),
        ([0, 1], 1, 1, placement([[0]], [1], [1])),
        ([0, 1], 3, 1, placement([[0], [0], [0]], [1], [1])),
        ([0, 1], 1, 2, placement([[0, 1]], [1], [1])),
        ([0, 1, 2], 2, 3, placement([[0, 1, 2], [0, 1, 2]], [2], [2])),
        ([0, 1, 2], 1, 1, placement([[0]], [2], [1])),
        ([0, 1, 2, 3], 2, 1, placement([[0], [1]], [3], [2])),
        ([0, 1, 2, 3], 3, 1, placement([[0], [1], [2]], [3], [3])),
        ([0, 1, 2, 3, 4, 5, 6], 2, 2, placement([[0, 1], [2, 3]], [6], [4, 5])),
        ([0, 1, 2, 3], 2, 2, placement([[0, 1, 2], [0, 1, 2]], [3], [3])),
    ],
)
def test_verifiers_get_the_first_cores_a_drafter_the_last_and_the_others_what_is_left_or_that(
    cores, num_verifiers, threads, expected
):
    assert place(cores, num_verifiers, threads) == expected


def test_only_cores_this_process_may_use_are_shared_out(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {5, 3}, raising=False)
    assert available() == (3, 5)
