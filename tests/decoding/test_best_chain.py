"""What a replica that verifies chains alone is sent of a tree, and what its verdict says of it."""

import numpy as np

from specmesh.decoding.acceptance import Verdict
from specmesh.decoding.sampling import Distribution
from specmesh.decoding.trees.best_chain import BestChain
from specmesh.decoding.trees.tree import EMPTY, TokenTree

TREE = TokenTree((5, 6, 7, 8, 9), (0, 0, 2, 1, 4))
"""5 8 9 are the first children; 6 hangs beside 5, and 7 below it."""


def test_it_is_the_first_child_everywhere():
    chain = BestChain.of(TREE, {})
    assert chain.nodes == (1, 4, 5)
    assert chain.tree == TokenTree.chain((5, 8, 9))


def test_its_tokens_keep_what_they_were_drawn_from():
    """Each by where it now hangs; that of a node beside it is not sent."""
    drawn_from = {node: Distribution(np.array([node]), np.array([1.0])) for node in (0, 1, 2, 4)}
    kept = BestChain.of(TREE, drawn_from).distributions
    assert {depth: each.token_ids.tolist() for depth, each in kept.items()} == {
        0: [0],
        1: [1],
        2: [4],
    }


def test_a_verdict_on_it_names_the_nodes_of_the_tree():
    verdict = Verdict((1, 2), next_token=3, recovered=True)
    assert BestChain.of(TREE, {}).in_tree(verdict) == Verdict((1, 4), 3, recovered=True)


def test_a_chain_is_its_own_and_so_is_nothing():
    chain = TokenTree.chain((5, 6))
    assert BestChain.of(chain, {}).tree == chain
    assert BestChain.of(EMPTY, {}).tree == EMPTY
