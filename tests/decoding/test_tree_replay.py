"""What trees would have saved on answers that are known."""

import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.decoding.test_tree_shape import any_paths

from specmesh.decoding.trees.replay import MISSED, NUM_RANKS, UNKNOWN, Replay
from specmesh.decoding.trees.shape import RankPath, TreeShape

DEPTH = 8


def windows(ranks: Sequence[int], depth: int = DEPTH) -> np.ndarray:
    """The ranks of an answer's tokens for a drafter that goes by the tokens before alone."""
    padded = [*ranks, *[UNKNOWN] * depth]
    return np.array([padded[n : n + depth] for n in range(len(ranks))], dtype=np.int8)


def any_answers(rng: random.Random) -> list[list[int]]:
    """Ranks of the tokens of some answers."""
    ranks = [0] * 6 + [1] * 2 + [2, MISSED]
    return [rng.choices(ranks, k=rng.randint(1, 30)) for _ in range(rng.randint(1, 5))]


def num_accepted(ranks: Sequence[int], paths: set[RankPath]) -> int:
    count = 0
    while count < len(ranks) and tuple(ranks[: count + 1]) in paths:
        count += 1
    return count


@given(st.integers(0, 2**32), st.integers(1, 25))
def test_a_replay_decodes_as_the_tree_would(seed, size):
    rng = random.Random(seed)
    answers, paths = any_answers(rng), any_paths(rng, size)
    paths = {path for path in paths if len(path) <= DEPTH and max(path) < NUM_RANKS}
    replay = Replay(list(map(windows, answers)))
    accepted = replay.accepted(paths)
    expected = [
        num_accepted(ranks[place : place + DEPTH], paths)
        for ranks in answers
        for place in range(len(ranks))
    ]
    assert accepted.tolist() == expected
    rounds = 0
    for ranks in answers:
        place = 0
        while place < len(ranks):
            place += num_accepted(ranks[place : place + DEPTH], paths) + 1
            rounds += 1
    assert replay.num_rounds(accepted).sum() == rounds
    shape = TreeShape.of(paths)
    assert replay.acceptance_length(shape) == pytest.approx(sum(map(len, answers)) / rounds)


def test_without_a_tree_each_verification_yields_a_token():
    replay = Replay([windows([0, 0, 0]), windows([0])])
    assert replay.num_rounds(replay.accepted(())).tolist() == [3, 1]


def test_accuracies_are_those_below_what_was_among_the_choices():
    replay = Replay([windows([0, 1, MISSED, 0], depth=2)])
    found = replay.accuracies()
    assert found.shape == (2, NUM_RANKS)
    assert found[0, :3].tolist() == [0.5, 0.25, 0]
    # Drafts from the first and from the second token go on; that from the fourth is at the end.
    assert found[1, :3].tolist() == [0.25, 0.25, 0]


def test_a_later_choice_is_never_more_accurate_than_an_earlier_one():
    replay = Replay([windows([0] * 5 + [1] + [2] * 3 + [MISSED], depth=1)])
    assert replay.accuracies()[0, :4].tolist() == [0.5, 0.2, 0.2, 0]
