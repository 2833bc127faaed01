"""Rejection mode, trees, and a replica that is sent the best chain of each: why it is the first
child, whatever was drawn."""

from __future__ import annotations

from collections import Counter

from tests.decoding.test_losslessness import NUM_TOKENS, exact_law, excess
from tests.orchestrator import world
from tests.orchestrator.goals import CALIBRATED_TREES
from tests.orchestrator.test_strategy_rejection import DRAFTERS, TARGET, sample
from tests.orchestrator.world import Chances

from specmesh.decoding.sampling import Sampling
from specmesh.decoding.trees.best_chain import BestChain
from specmesh.decoding.trees.tree import TokenTree
from specmesh.orchestrator.strategies.base import Goal
from specmesh.orchestrator.strategies.events import Capacity
from specmesh.orchestrator.strategies.options import CALIBRATED


def beyond_the_law(chains_alone: float, num_samples: int) -> float:
    """How far what is said by trees of a fixed shape is from the target's law; 1 is too far."""
    goal = Goal(max_tokens=7, width=6, shape=CALIBRATED, calibrated_trees=CALIBRATED_TREES)
    scene = (goal, Capacity(), Chances(chains_alone=chains_alone))
    counts: Counter[tuple[int, ...]] = Counter()
    for text, count in sample("tree", scene, (TARGET, DRAFTERS), num_samples).items():
        counts[text[:NUM_TOKENS]] += count
    return excess(counts, exact_law(TARGET, Sampling()))


def test_best_chains_keep_the_law():
    assert beyond_the_law(chains_alone=0.5, num_samples=1_000) < 1


def test_a_chain_that_is_chosen_by_its_tokens_would_be_seen(monkeypatch):
    class Lowest(BestChain):
        @classmethod
        def of(cls, tree, distributions):
            """Of children the one with the lowest token."""
            nodes = [0]
            while children := tree.children(nodes[-1]):
                nodes.append(min(children, key=lambda node: tree.token_ids[node - 1]))
            drawn_from = [distributions.get(node) for node in nodes]
            kept = {depth: each for depth, each in enumerate(drawn_from) if each is not None}
            return cls(tuple(nodes[1:]), TokenTree.chain(tree.tokens_on(nodes[1:])), kept)

    monkeypatch.setattr(world, "BestChain", Lowest)
    assert beyond_the_law(1.0, num_samples=600) > 1
