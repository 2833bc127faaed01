"""Token trees: what is refused, and what the rest answer."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specmesh.decoding.errors import InvalidField
from specmesh.decoding.trees.tree import EMPTY, TokenTree

#     0 -+- 1 (a) -+- 3 (a) --- 5 (c)
#        |         +- 4 (b)
#        +- 2 (b)
TREE = TokenTree(token_ids=(10, 11, 10, 11, 12), parents=(0, 0, 1, 1, 3))


def test_nodes_know_their_children_in_listed_order():
    assert [TREE.children(node) for node in range(6)] == [(1, 2), (3, 4), (), (5,), (), ()]


def test_depth_counts_tokens_from_the_prefix():
    assert TREE.depths == (0, 1, 1, 2, 2, 3)
    assert TREE.depth(5) == 3


def test_path_runs_from_the_prefix_down_to_the_node():
    assert TREE.path(5) == (1, 3, 5)
    assert TREE.path(0) == ()
    assert TREE.tokens_on((1, 3, 5)) == (10, 10, 12)


def test_child_is_found_by_its_token():
    assert TREE.child_with(1, 11) == 4
    assert TREE.child_with(0, 12) is None


def test_chain_has_no_branches():
    chain = TokenTree.chain([5, 5, 5])
    assert chain.parents == (0, 1, 2)
    assert chain.is_chain
    assert EMPTY.is_chain
    assert not TREE.is_chain
    assert not TokenTree((1, 2, 3), (0, 0, 2)).is_chain


def test_extension_numbers_new_nodes_on_from_the_old():
    assert TokenTree((10, 11), (0, 0)).extend([10, 11, 12], [1, 1, 3]) == TREE


@pytest.mark.parametrize(
    ("token_ids", "parents", "field"),
    [
        ((1, 2), (0,), "tree.parents"),
        ((1,), (0, 1), "tree.parents"),
        ((1,), (1,), "tree.parents"),
        ((1, 2), (2, 0), "tree.parents"),
        ((1,), (-1,), "tree.parents"),
        ((1, 2, 1), (0, 0, 0), "tree.token_ids"),
    ],
)
def test_malformed_tree_is_refused_by_field(token_ids, parents, field):
    with pytest.raises(InvalidField) as refusal:
        TokenTree(token_ids, parents)
    assert refusal.value.field == field


def test_tokens_lead_to_the_nodes_that_carry_them_as_far_as_there_are_any():
    tree = TokenTree((7, 8, 9, 5), (0, 0, 1, 2))
    assert tree.follow((8, 5, 5)) == (2, 4)
    assert tree.follow((7, 9)) == (1, 3)
    assert tree.follow((9,)) == tree.follow(()) == ()


def test_extension_is_checked_too():
    with pytest.raises(InvalidField):
        TREE.extend([12], [3])  # a second child of node 3 with token 12
    with pytest.raises(InvalidField):
        TREE.extend([1], [6])


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 3)), max_size=12))
def test_tree_stands_exactly_when_parents_come_earlier_and_siblings_differ(nodes):
    parents = tuple(parent for parent, _ in nodes)
    token_ids = tuple(token for _, token in nodes)
    valid = all(parent <= k for k, parent in enumerate(parents)) and len(set(nodes)) == len(nodes)
    if not valid:
        with pytest.raises(InvalidField):
            TokenTree(token_ids, parents)
        return
    tree = TokenTree(token_ids, parents)
    for node in range(len(tree) + 1):
        path = tree.path(node)
        assert len(path) == tree.depth(node)
        assert path == ((*tree.path(tree.parents[node - 1]), node) if node else ())
        assert all(tree.parents[child - 1] == node for child in tree.children(node))
        assert all(tree.child_with(node, tree.token_ids[c - 1]) == c for c in tree.children(node))
    assert sum(len(tree.children(node)) for node in range(len(tree) + 1)) == len(tree)
