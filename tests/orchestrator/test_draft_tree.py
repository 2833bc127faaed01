"""What a verification teaches about a tree, whatever part of it the replica was sent."""

from __future__ import annotations

import numpy as np

from specmesh.decoding.acceptance import Verdict
from specmesh.decoding.sampling import Distribution
from specmesh.decoding.trees.tree import TokenTree
from specmesh.orchestrator.strategies.base import Goal
from specmesh.orchestrator.strategies.events import Capacity, Drafted, Verified
from specmesh.orchestrator.strategies.kit.draft_tree import DraftTree
from specmesh.orchestrator.strategies.tree import Tree

TREE = TokenTree((5, 6, 7, 8, 9), (0, 0, 1, 1, 2))
"""5 or 6; 7 or 8 after 5, and 9 after 6."""
FIRST_CHOICES = (1, 3)
LAW = Distribution(np.array([5, 6, 7, 8]), np.full(4, 0.25))


def accepted_ranks(
    accepted_nodes: tuple[int, ...],
    next_token: int,
    tried: tuple[int, ...] | None = None,
    drawn: tuple[int, ...] = (),
) -> list[tuple[int, int | None]]:
    """For each level that was tried, how many siblings, and which was accepted."""
    tree = DraftTree(TREE, {}, dict.fromkeys(drawn, LAW))
    outcome = tree.outcome(accepted_nodes, next_token, tried)
    return [(len(each.confidences), each.accepted) for each in outcome.siblings]


def test_every_level_of_the_accepted_path_was_tried():
    assert accepted_ranks((1, 4), next_token=3) == [(2, 0), (2, 1)]
    assert accepted_ranks((2,), next_token=3) == [(2, 1), (1, None)]
    assert accepted_ranks((), next_token=3) == [(2, None)]


def test_a_second_child_that_was_right_is_accepted_although_it_was_not_tried():
    assert accepted_ranks((), next_token=6, tried=FIRST_CHOICES) == [(2, 1)]
    assert accepted_ranks((1,), next_token=8, tried=FIRST_CHOICES) == [(2, 0), (2, 1)]
    assert accepted_ranks((1,), next_token=4, tried=FIRST_CHOICES) == [(2, 0), (2, None)]


def test_nothing_is_learnt_of_drawn_children_that_were_not_tried():
    """Rejection mode: the target's own token is no trial of them."""
    drawn = (0, 1, 2)
    assert accepted_ranks((), next_token=6, tried=FIRST_CHOICES, drawn=drawn) == [(1, None)]
    assert accepted_ranks((1,), next_token=8, tried=FIRST_CHOICES, drawn=drawn) == [
        (1, 0),
        (1, None),
    ]
    assert accepted_ranks((1, 4), next_token=3, drawn=drawn) == [(2, 0), (2, 1)]


def test_a_replica_that_verifies_chains_alone_does_not_make_trees_look_worse():
    """Where the second choice is always right, its next trees are as good as with others."""

    def acceptance(verified: Verified) -> float:
        strategy = Tree(Goal(20))
        (draft,) = strategy.start(Capacity())
        strategy.handle(Drafted(draft.task, (5, 6), (0, 0), {}, last=True))
        strategy.handle(verified)
        return strategy._adaptive._acceptance.alpha

    whole = Verified(2, Verdict((2,), next_token=3, recovered=False))
    chain_alone = Verified(2, Verdict((), next_token=6, recovered=True), tried=(1,))
    assert acceptance(chain_alone) == acceptance(whole)
