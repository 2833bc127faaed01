"""A tree's best chain, for a replica that is to be sent chains alone.

The first child everywhere: in greedy and coupled mode, where any path would be exact, since the
target has one token for each position, drafters and whoever merges their trees put the likeliest
first. In rejection mode no other will do: of
children drawn without replacement the first alone is drawn from the very distribution that the
replica is sent, and to look for a better one would be to choose by what was drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from specmesh.decoding.acceptance import Verdict
from specmesh.decoding.sampling import Distribution
from specmesh.decoding.trees.tree import TokenTree


@dataclass(frozen=True, slots=True)
class BestChain:
    """``nodes`` of a tree, from the prefix downwards; ``tree`` and ``distributions`` are the draft
    that they make."""

    nodes: tuple[int, ...]
    tree: TokenTree
    distributions: Mapping[int, Distribution]

    @classmethod
    def of(cls, tree: TokenTree, distributions: Mapping[int, Distribution]) -> BestChain:
        """That of ``tree``, whose children were drawn from ``distributions`` (rejection mode)."""
        nodes = [0]
        while children := tree.children(nodes[-1]):
            nodes.append(children[0])
        drawn_from = {
            depth: distributions[node] for depth, node in enumerate(nodes) if node in distributions
        }
        path = tuple(nodes[1:])
        return cls(path, TokenTree.chain(tree.tokens_on(path)), drawn_from)

    def in_tree(self, verdict: Verdict) -> Verdict:
        """A ``verdict`` on the chain, as one on the tree. Its next token may then be that of a
        child that was not tried."""
        accepted = tuple(self.nodes[node - 1] for node in verdict.accepted_nodes)
        return replace(verdict, accepted_nodes=accepted)
