"""A tree's best chain, for a replica that verifies only chains.

It takes the first child everywhere. In greedy and coupled mode any path would be exact, since the
target has one token for each position, and drafters and ``merge`` list the likeliest child first.
In rejection mode only the first child is exact: of children drawn without replacement, only the
first is drawn from exactly the distribution that the replica gets, and looking for a better child
would be a choice that depends on the drawn tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from specmesh.decoding.acceptance import Verdict
from specmesh.decoding.sampling import Distribution
from specmesh.decoding.trees.tree import TokenTree


@dataclass(frozen=True, slots=True)
class BestChain:
    """The ``nodes`` of a tree from the prefix downwards, and the draft that they form: ``tree`` and
    ``distributions``."""

    nodes: tuple[int, ...]
    tree: TokenTree
    distributions: Mapping[int, Distribution]

    @classmethod
    def of(cls, tree: TokenTree, distributions: Mapping[int, Distribution]) -> BestChain:
        """Return the best chain of ``tree``, whose children were drawn from ``distributions``
        (rejection mode)."""
        nodes = [0]
        while children := tree.children(nodes[-1]):
            nodes.append(children[0])
        drawn_from = {
            depth: distributions[node] for depth, node in enumerate(nodes) if node in distributions
        }
        path = tuple(nodes[1:])
        return cls(path, TokenTree.chain(tree.tokens_on(path)), drawn_from)

    def in_tree(self, verdict: Verdict) -> Verdict:
        """Convert a ``verdict`` on the chain to one on the tree. Its next token may then equal that
        of a child that was not tried."""
        accepted = tuple(self.nodes[node - 1] for node in verdict.accepted_nodes)
        return replace(verdict, accepted_nodes=accepted)
