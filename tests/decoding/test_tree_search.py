"""The best trees by measured accuracy."""

import itertools
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.decoding.test_tree_replay import any_answers, windows

from specmesh.decoding.trees import search as tree_search
from specmesh.decoding.trees.replay import MISSED, Replay
from specmesh.decoding.trees.search import (
    best_trees,
    expected_length,
    improved,
    likeliest_paths,
    product,
)
from specmesh.decoding.trees.shape import RankPath, TreeShape


def all_trees(size: int, depth: int, num_ranks: int) -> set[frozenset[RankPath]]:
    """Every tree of ``size`` nodes, also those that skip a rank."""
    found = {frozenset[RankPath]()}
    for _ in range(size):
        found = {
            tree | {(*parent, rank)}
            for tree in found
            for parent in [(), *tree]
            for rank in range(num_ranks)
            if len(parent) < depth and (*parent, rank) not in tree
        }
    return found


def test_there_are_as_many_trees_as_there_should_be():
    """Of two nodes with two ranks: both at the top, or one below one of two."""
    assert len(all_trees(2, depth=2, num_ranks=2)) == 5


@settings(max_examples=25)
@given(st.integers(0, 2**32), st.integers(1, 3), st.integers(2, 3))
def test_the_likeliest_paths_are_the_best_tree_of_any_size(seed, depth, num_ranks):
    noise = np.random.default_rng(seed).random((depth, num_ranks))
    accuracies = np.sort(noise / noise.sum(axis=1, keepdims=True), axis=1)[:, ::-1]
    paths = likeliest_paths(accuracies, 6 if num_ranks == 2 else 4)
    for size in range(1, len(paths) + 1):
        best = max(
            sum(product(accuracies, path) for path in tree)
            for tree in all_trees(size, depth, num_ranks)
        )
        shape = TreeShape.of(paths[:size])
        assert expected_length(accuracies, shape) == pytest.approx(1 + best)


def test_there_are_no_more_paths_than_there_are():
    accuracies = np.array([[0.5, 0.25], [0.5, 0.25]])
    paths = likeliest_paths(accuracies, 64)
    expected = itertools.chain(
        itertools.product(range(2), repeat=1), itertools.product(range(2), repeat=2)
    )
    assert sorted(paths) == sorted(expected)


@settings(max_examples=30)
@given(st.integers(0, 2**32))
def test_the_search_takes_no_more_verifications_than_the_products(seed):
    replay = Replay(list(map(windows, any_answers(random.Random(seed)))))
    trees = best_trees(replay, 8)
    likeliest = likeliest_paths(replay.accuracies(), 8)
    for width, tree in enumerate(trees, start=1):
        greedy = TreeShape.of(likeliest[:width])
        assert tree.num_nodes == width
        assert replay.acceptance_length(tree) >= replay.acceptance_length(greedy)
    assert best_trees(replay, 8) == trees


def second_choices_come_together() -> Replay:
    """A first choice that is right is followed by a miss, a second one by another second one."""
    return Replay([windows([0, MISSED] * 6 + [1, 1, MISSED] * 4) for _ in range(8)])


def test_the_search_finds_what_products_miss():
    replay = second_choices_come_together()
    products = TreeShape.of(likeliest_paths(replay.accuracies(), 4))
    best = best_trees(replay, 4)[3]
    assert (1, 1) not in products.paths()
    assert (1, 1) in best.paths()
    assert replay.acceptance_length(best) > 1.1 * replay.acceptance_length(products)


def test_siblings_swap_what_hangs_below_them():
    replay = second_choices_come_together()
    swapped = improved(replay, frozenset([(0,), (1,), (0, 0), (0, 1)]))
    assert swapped == {(0,), (1,), (1, 0), (1, 1)}


def test_savings_that_may_be_chance_are_left_alone(monkeypatch):
    """One answer of many would be better off with another tree."""
    answers = [[0, 0, MISSED] * 4] * 8 + [[1, 1, 1, MISSED] * 4]
    replay = Replay(list(map(windows, answers)))
    tree = frozenset([(0,), (0, 0), (0, 1)])
    assert improved(replay, tree) == tree
    monkeypatch.setattr(tree_search, "SIGNIFICANCE", 0.0)
    assert improved(replay, tree) != tree
