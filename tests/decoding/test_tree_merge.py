"""Several drafts become one tree, which loses none of their paths and mixes no distributions."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from specmesh.decoding.sampling import Distribution
from specmesh.decoding.trees.merge import DrawnTree, merge
from specmesh.decoding.trees.tree import EMPTY, TokenTree

HEADS = TokenTree((7, 8, 9, 5), (0, 0, 1, 2))
CHAIN = TokenTree.chain((8, 6, 1))


def merged(*trees: TokenTree, max_nodes: int = 64) -> TokenTree:
    return merge([DrawnTree(tree, {}) for tree in trees], max_nodes).tree


def drawn(tree: TokenTree, source: int) -> DrawnTree:
    """In rejection mode; probabilities tell of the source and the node."""
    shares = [1 / (2 + source), 1 / (3 + source)]
    return DrawnTree(
        tree,
        {
            node: Distribution(np.arange(10), np.array([*shares, *[node / 1000] * 8]))
            for node in range(len(tree) + 1)
            if tree.children(node)
        },
    )


def paths(tree: TokenTree) -> set[tuple[int, ...]]:
    return {tree.tokens_on(tree.path(node)) for node in range(1, len(tree) + 1)}


def test_a_path_that_two_drafts_share_is_there_once():
    assert merged(HEADS, CHAIN) == TokenTree((7, 8, 9, 5, 6, 1), (0, 0, 1, 2, 2, 5))


def test_of_siblings_those_of_the_first_draft_come_first():
    assert merged(CHAIN, HEADS) == TokenTree((8, 7, 6, 5, 9, 1), (0, 0, 1, 1, 2, 3))


def test_nothing_is_added_to_a_draft_that_is_alone():
    assert merged(HEADS) == merged(HEADS, EMPTY) == merged(EMPTY, HEADS) == HEADS
    assert merged() == merged(EMPTY, EMPTY) == EMPTY


def test_where_there_is_no_room_the_deepest_nodes_are_left_out():
    assert merged(HEADS, CHAIN, max_nodes=5) == TokenTree((7, 8, 9, 5, 6), (0, 0, 1, 2, 2))
    assert merged(HEADS, CHAIN, max_nodes=1) == TokenTree((7,), (0,))
    assert merged(HEADS, CHAIN, max_nodes=0) == EMPTY


def test_in_rejection_mode_another_draft_goes_on_only_where_the_first_ends():
    heads = drawn(TokenTree((7, 8, 9), (0, 0, 1)), 0)
    chain = drawn(TokenTree.chain((8, 6, 1)), 1)
    both = merge([heads, chain], 64)
    assert both.tree == TokenTree((7, 8, 9, 6, 1), (0, 0, 1, 2, 4))
    assert both.distributions == {
        0: heads.distributions[0],
        1: heads.distributions[1],
        2: chain.distributions[1],
        4: chain.distributions[2],
    }
    elsewhere = drawn(TokenTree.chain((6, 8)), 1)
    assert merge([heads, elsewhere], 64).tree == heads.tree


def test_in_rejection_mode_a_draft_alone_keeps_what_it_was_drawn_from():
    chain = drawn(TokenTree.chain((8, 6, 1)), 1)
    both = merge([DrawnTree(EMPTY, {}), chain], 2)
    assert both.tree == TokenTree.chain((8, 6))
    assert both.distributions == {0: chain.distributions[0], 1: chain.distributions[1]}


@st.composite
def trees(draw: st.DrawFn) -> TokenTree:
    rng = random.Random(draw(st.integers(0, 2**32)))
    tree = EMPTY
    for _ in range(draw(st.integers(0, 12))):
        parent = rng.randint(0, len(tree))
        token = rng.randrange(4)
        if tree.child_with(parent, token) is None:
            tree = tree.extend([token], [parent])
    return tree


@given(st.lists(trees(), max_size=4))
def test_the_merged_tree_has_the_paths_of_all_and_no_others(given_trees: Sequence[TokenTree]):
    both = merged(*given_trees)
    assert paths(both) == set().union(*map(paths, given_trees))
    assert list(both.depths) == sorted(both.depths)


@given(st.lists(trees(), max_size=4), st.integers(0, 20))
def test_what_there_is_room_for_is_the_beginning_of_all(given_trees, max_nodes):
    whole = merged(*given_trees)
    kept = merged(*given_trees, max_nodes=max_nodes)
    assert kept.token_ids == whole.token_ids[:max_nodes]
    assert kept.parents == whole.parents[:max_nodes]


@given(st.lists(trees(), min_size=1, max_size=4), st.integers(0, 20))
def test_in_rejection_mode_all_children_of_a_node_are_the_first_of_one_draft(
    given_trees: Sequence[TokenTree], max_nodes: int
):
    drafts = [drawn(tree, number) for number, tree in enumerate(given_trees)]
    both = merge(drafts, max_nodes)
    parents = {node for node in range(len(both.tree) + 1) if both.tree.children(node)}
    assert both.distributions.keys() == parents
    for node in parents:
        path = both.tree.tokens_on(both.tree.path(node))
        here = [
            (draft, at[-1] if at else 0)
            for draft in drafts
            if len(at := draft.tree.follow(path)) == len(path)
        ]
        source, at = next(each for each in here if each[0].tree.children(each[1]))
        assert both.distributions[node] is source.distributions[at]
        siblings = both.tree.tokens_on(both.tree.children(node))
        assert siblings == source.tree.tokens_on(source.tree.children(at))[: len(siblings)]
