"""A draft as it is verified: a tree, and what the drafter said of its nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specmesh.decoding.drafting import TopK
from specmesh.decoding.sampling import Distribution
from specmesh.decoding.siblings import sibling_confidences
from specmesh.decoding.tree import TokenTree
from specmesh.decoding.tree_merge import DrawnTree
from specmesh.decoding.tree_plan import Siblings, TreeOutcome


@dataclass(frozen=True, slots=True)
class DraftTree:
    """``tree`` and, by the node that others hang from, the drafter's likeliest tokens there
    (``choices``) and what they were drawn from (``distributions``, rejection mode)."""

    tree: TokenTree
    choices: Mapping[int, TopK]
    distributions: Mapping[int, Distribution]

    def first(self, num_nodes: int) -> DraftTree:
        """Its first ``num_nodes`` nodes."""
        token_ids, parents = self.tree.token_ids[:num_nodes], self.tree.parents[:num_nodes]
        kept = {node: self.distributions[node] for node in parents if node in self.distributions}
        return DraftTree(TokenTree(token_ids, parents), self.choices, kept)

    @property
    def drawn(self) -> DrawnTree:
        """It without the choices."""
        return DrawnTree(self.tree, self.distributions)

    def outcome(self, accepted_nodes: Sequence[int]) -> TreeOutcome:
        """What its verification taught: all nodes on the accepted path had their children tried."""
        return TreeOutcome(
            num_nodes=len(self.tree),
            num_levels=max(self.tree.depths),
            siblings=tuple(
                self._siblings(node, accepted_nodes)
                for node in (0, *accepted_nodes)
                if self.tree.children(node)
            ),
        )

    def _siblings(self, node: int, accepted_nodes: Sequence[int]) -> Siblings:
        children = self.tree.children(node)
        confidences = sibling_confidences(
            self.tree.tokens_on(children), self.choices.get(node), self.distributions.get(node)
        )
        taken = [rank for rank, child in enumerate(children) if child in accepted_nodes]
        return Siblings(confidences, taken[0] if taken else None)
