"""Trees of a fixed shape."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specmesh.decoding.errors import InvalidField
from specmesh.decoding.trees.shape import RankPath, TreeShape


def any_paths(rng: random.Random, size: int) -> set[RankPath]:
    """A tree that grew at random."""
    paths = set[RankPath]()
    while len(paths) < size:
        parent = rng.choice([(), *sorted(paths)])
        rank = next(rank for rank in range(size) if (*parent, rank) not in paths)
        paths.add((*parent, rank))
    return paths


def test_nodes_are_numbered_level_by_level():
    shape = TreeShape((2, 0, 2, 0, 1))
    assert [list(shape.children(node)) for node in range(7)] == [
        [1, 2],
        [],
        [3, 4],
        [],
        [5],
        [],
        [],
    ]
    assert shape.paths() == ((0,), (1,), (1, 0), (1, 1), (1, 1, 0))
    assert (shape.num_nodes, shape.depth) == (5, 3)


def test_a_chain_has_one_node_a_level():
    assert TreeShape.chain(3).paths() == ((0,), (0, 0), (0, 0, 0))


@given(st.integers(0, 2**32), st.integers(1, 40))
def test_paths_make_the_shape_and_the_shape_the_paths(seed, size):
    paths = any_paths(random.Random(seed), size)
    shape = TreeShape.of(paths)
    assert set(shape.paths()) == paths
    assert (shape.num_nodes, shape.depth) == (size, max(map(len, paths)))
    assert TreeShape.of(shape.paths()) == shape == TreeShape(shape.num_children)


@pytest.mark.parametrize("counts", [(), (0,), (2, 0), (0, 1), (1, 0, 1), (2, -1, 1)])
def test_children_of_no_node_and_numbers_that_say_nothing_are_refused(counts):
    with pytest.raises(InvalidField) as raised:
        TreeShape(counts)
    assert raised.value.field == "num_children"
