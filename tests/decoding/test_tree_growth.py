"""Trees that grow by what their nodes are worth."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Sequence
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specmesh.decoding.drafting import MAX_CANDIDATES, Drawn, TopK, draw_children
from specmesh.decoding.predict.lookahead import DraftStop
from specmesh.decoding.predict.platt import Platt
from specmesh.decoding.sampling import AcceptanceMode, Distribution, Sampling
from specmesh.decoding.trees.growth import Children, Guess, TreeGrowth, is_last, next_level
from specmesh.decoding.trees.siblings import expected_confidences, sibling_confidences

Path = tuple[int, ...]
"""The ranks of the choices that lead to a node."""

NUM_CHOICES, DEPTH = 3, 4
REJECTION = Sampling(mode=AcceptanceMode.REJECTION)


class Table:
    """A drafter whose confidences in its choices are drawn anew at every node."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def after(self, path: Path) -> TopK:
        rng = random.Random(f"{self._seed} {path}")
        weights = sorted((rng.random() ** 3 + 1e-3 for _ in range(NUM_CHOICES)), reverse=True)
        total = sum(weights) * (1 + rng.random())
        return TopK(tuple(range(NUM_CHOICES)), tuple(w / total for w in weights), 0.0)

    def worth(self, path: Path, acceptance: Platt) -> float:
        worth = 1.0
        for length, rank in enumerate(path):
            worth *= acceptance(self.after(path[:length]).probabilities[rank])
        return worth


def grown(table: Table, growth: TreeGrowth, stop: DraftStop) -> list[list[Path]]:
    """The nodes of each level."""
    tips: list[tuple[Path, float]] = [((), 1.0)]
    levels: list[list[Path]] = []
    while tips and len(levels) < DEPTH:
        num_nodes = sum(map(len, levels))
        guesses = [
            Guess(chance, Drawn(tuple(range(NUM_CHOICES)), None, table.after(path)))
            for path, chance in tips
        ]
        level = next_level(guesses, stop, growth, num_nodes)
        tips = [
            ((*path, token), chance)
            for (path, _), children in zip(tips, level, strict=True)
            for token, chance in zip(children.token_ids, children.chances, strict=True)
        ]
        levels.append([path for path, _ in tips])
        if is_last(level, stop, growth, num_nodes + len(tips)):
            break
    return levels


def all_paths() -> list[Path]:
    ranks = range(NUM_CHOICES)
    return [
        path for depth in range(1, DEPTH + 1) for path in itertools.product(ranks, repeat=depth)
    ]


@given(st.integers(0, 2**32), st.floats(0.005, 0.9), st.floats(0.3, 2), st.floats(-1, 1))
def test_a_tree_is_the_best_of_all_with_its_number_of_nodes(seed, least, slope, bias):
    table, acceptance = Table(seed), Platt(slope, bias)
    levels = grown(table, TreeGrowth(1024, least), DraftStop(0.0, acceptance))
    nodes = [path for level in levels for path in level]
    worths = {path: table.worth(path, acceptance) for path in all_paths()}
    if nodes == [nodes[0]] and worths[nodes[0]] < least:
        assert worths[nodes[0]] == max(worths.values())  # one there is in any case
        return
    best = heapq.nlargest(len(nodes), all_paths(), key=worths.__getitem__)
    assert sum(map(worths.__getitem__, nodes)) == pytest.approx(sum(map(worths.get, best)))
    assert min(map(worths.__getitem__, nodes)) >= least
    assert all(worth < least for path, worth in worths.items() if path not in nodes)


@given(st.integers(0, 2**32), st.integers(1, 30), st.sampled_from([0.0, 0.01, 0.1]))
def test_a_level_takes_the_best_there_is_room_for(seed, room, least):
    table = Table(seed)
    growth, stop = TreeGrowth(room, least), DraftStop(0.0, Platt())
    nodes = set[Path]()
    for level in grown(table, growth, stop):
        assert len(nodes) + len(level) <= room
        depth = len(level[0]) if level else 0
        candidates = [path for path in all_paths() if len(path) == depth]
        candidates = [path for path in candidates if depth == 1 or path[:-1] in nodes]
        left_out = [table.worth(path, Platt()) for path in candidates if path not in level]
        if level and left_out and len(nodes) + len(level) == room:
            assert min(table.worth(path, Platt()) for path in level) >= max(left_out) - 1e-12
        nodes |= set(level)
    assert nodes


@given(st.integers(0, 2**32), st.floats(0, 1))
def test_a_draft_ends_with_the_level_whose_sum_is_too_little(seed, below):
    table, growth = Table(seed), TreeGrowth(1024, 0.02)
    whole = grown(table, growth, DraftStop(0.0, Platt()))
    levels = grown(table, growth, DraftStop(below, Platt()))
    assert levels == whole[: len(levels)]
    sums = [sum(table.worth(path, Platt()) for path in level) for level in levels]
    assert all(each >= below for each in sums[:-1])
    if len(levels) < len(whole):
        assert sums[-1] < below


def test_a_draft_is_over_once_there_is_no_more_room():
    level = [Children((1, 2), (0.5, 0.4))]
    growth = TreeGrowth(2, 0.0)
    assert is_last(level, DraftStop(0.0, Platt()), growth, num_nodes=2)
    assert not is_last(level, DraftStop(0.0, Platt()), growth, num_nodes=1)


def guesses_of(rows: Sequence[np.ndarray], seed: int) -> list[Guess]:
    """A level in rejection mode, drawn with ``seed``."""
    sampling = Sampling(seed=seed, mode=AcceptanceMode.REJECTION)
    return [Guess(0.8**n, draw_children(row, sampling, 3, 20)) for n, row in enumerate(rows)]


def test_in_rejection_mode_the_number_of_children_knows_nothing_of_the_tokens_drawn():
    rows = [3 * np.random.default_rng(n).normal(size=30) for n in range(4)]
    stop = DraftStop(0.0, Platt(0.9, 0.2))
    for growth in (TreeGrowth(7, 0.0), TreeGrowth(64, 0.05), TreeGrowth(64, 0.99)):
        shapes, drawn = set(), set()
        for seed in range(60):
            level = next_level(guesses_of(rows, seed), stop, growth, num_nodes=0)
            shapes.add(tuple(len(children.token_ids) for children in level))
            drawn.add(tuple(children.token_ids for children in level))
        assert len(shapes) == 1 < len(drawn)
        assert sum(shapes.pop()) >= 1


distributions = st.builds(
    lambda weights: Distribution(np.arange(len(weights)), np.array(weights) / sum(weights)),
    st.lists(st.floats(1e-4, 1), min_size=1, max_size=MAX_CANDIDATES),
)


@given(distributions)
def test_expected_confidences_never_rise_and_there_is_one_for_each_token(distribution):
    expected = list(expected_confidences(distribution))
    assert len(expected) == len(distribution.token_ids)
    assert expected == sorted(expected, reverse=True)
    assert all(0 <= each <= 1 for each in expected)


@settings(deadline=None)
@given(distributions, st.randoms(use_true_random=False))
def test_of_siblings_drawn_at_random_one_at_most_is_accepted(distribution, rng):
    children = rng.sample(distribution.token_ids.tolist(), k=len(distribution.token_ids))
    assert 0 <= sum(sibling_confidences(children, None, distribution)) <= 1 + 1e-9


def test_the_first_is_expected_as_sure_as_it_is_on_average():
    logits = 2 * np.random.default_rng(3).normal(size=12)
    sure = []
    for seed in range(4_000):
        drawn = draw_children(logits, Sampling(seed=seed, mode=REJECTION.mode), 0, 1)
        assert drawn.distribution is not None
        sure += sibling_confidences(drawn.children, None, drawn.distribution)
        expected = next(expected_confidences(drawn.distribution))
    assert fmean(sure) == pytest.approx(expected, abs=0.02)


def test_a_drafter_that_says_nothing_is_taken_to_be_sure_of_its_first_choice_alone():
    first, *others = sibling_confidences((5, 6, 7), None, None)
    assert first == 1
    assert max(others) < 0.01
    assert sibling_confidences((), None, None) == ()
