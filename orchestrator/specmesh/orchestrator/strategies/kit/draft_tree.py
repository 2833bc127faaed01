"""A draft in the form in which it is verified: a tree, and the drafter's view of its nodes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from specmesh.decoding.drafting import TopK
from specmesh.decoding.sampling import Distribution
from specmesh.decoding.trees.merge import DrawnTree
from specmesh.decoding.trees.plan import Siblings, TreeOutcome
from specmesh.decoding.trees.siblings import sibling_confidences
from specmesh.decoding.trees.tree import TokenTree


@dataclass(frozen=True, slots=True)
class DraftTree:
    """``tree`` and, by parent, the drafter's likeliest tokens for the children (``choices``) and
    the distributions they were drawn from (``distributions``, rejection mode)."""

    tree: TokenTree
    choices: Mapping[int, TopK]
    distributions: Mapping[int, Distribution]

    def first(self, num_nodes: int) -> DraftTree:
        """Return its first ``num_nodes`` nodes."""
        token_ids, parents = self.tree.token_ids[:num_nodes], self.tree.parents[:num_nodes]
        kept = {node: self.distributions[node] for node in parents if node in self.distributions}
        return DraftTree(TokenTree(token_ids, parents), self.choices, kept)

    @property
    def drawn(self) -> DrawnTree:
        """The tree without the choices."""
        return DrawnTree(self.tree, self.distributions)

    def outcome(
        self,
        accepted_nodes: Sequence[int],
        next_token: int,
        tried: Collection[int] | None = None,
    ) -> TreeOutcome:
        """Return the outcome of its verification: the nodes on the accepted path had their children
        tried.

        ``next_token`` is the target's own after that path. ``tried`` has the only nodes that were
        sent to the replica; None means all of them.
        """
        return TreeOutcome(
            num_nodes=len(self.tree),
            num_levels=max(self.tree.depths),
            siblings=tuple(
                self._siblings(node, said, tried)
                for node, said in zip(
                    (0, *accepted_nodes),
                    (*self.tree.tokens_on(accepted_nodes), next_token),
                    strict=True,
                )
                if self.tree.children(node)
            ),
        )

    def _siblings(self, node: int, said: int, tried: Collection[int] | None) -> Siblings:
        """Judge the children of ``node``, where the target has ``said`` a token.

        A child that was not drawn is right if it is that token, whether it was tried or not. A
        drawn child (rejection mode) that was not tried teaches nothing.
        """
        children = self.tree.children(node)
        if tried is not None and node in self.distributions:
            children = tuple(child for child in children if child in tried)
        tokens = self.tree.tokens_on(children)
        confidences = sibling_confidences(
            tokens, self.choices.get(node), self.distributions.get(node)
        )
        return Siblings(confidences, tokens.index(said) if said in tokens else None)
