"""A draft under way: chains or trees that grow below some nodes of a tree."""

from __future__ import annotations

from collections.abc import Sequence

from specmesh.decoding.drafting import TopK
from specmesh.decoding.sampling import Distribution
from specmesh.decoding.trees.tree import EMPTY, TokenTree
from specmesh.orchestrator.strategies.commands import TaskId
from specmesh.orchestrator.strategies.events import Drafted
from specmesh.orchestrator.strategies.kit.draft_chain import DraftChain
from specmesh.orchestrator.strategies.kit.draft_tree import DraftTree


class GrowingTree:
    """The nodes of one draft task."""

    def __init__(self, task: TaskId, tree: TokenTree = EMPTY) -> None:
        self.task = task
        self.ended = False
        self._given = tree
        self._tokens: list[int] = []
        self._parents: list[int] = []
        self._children: dict[int, list[int]] = {}
        """Children of each node, among the drafted ones."""
        self._choices: dict[int, TopK] = {}
        self._distributions: dict[int, Distribution] = {}

    def extend(self, event: Drafted) -> None:
        """Append the drafted nodes."""
        for token, parent in zip(event.token_ids, event.parents, strict=True):
            self._tokens.append(token)
            self._parents.append(parent)
            self._children.setdefault(parent, []).append(len(self._given) + len(self._tokens))
        self._choices |= event.choices
        self._distributions |= event.distributions
        self.ended |= event.last

    def below(self, node: int, tokens: Sequence[int]) -> int | None:
        """Return the drafted node that ``tokens`` lead to from ``node``; None if there is none."""
        for token in tokens:
            children = self._children.get(node, ())
            found = next((child for child in children if self._token(child) == token), None)
            if found is None:
                return None
            node = found
        return node

    def chain_below(self, node: int) -> DraftChain:
        """Return what was drafted below ``node`` so far; in a tree, always take the first child."""
        chain = DraftChain()
        while children := self._children.get(node):
            chain.tokens.append(self._token(children[0]))
            chain.choices.append(self._choices.get(node))
            chain.distributions.append(self._distributions.get(node))
            node = children[0]
        return chain

    @property
    def whole(self) -> DraftTree:
        """The given tree with all nodes drafted so far."""
        tree = self._given.extend(self._tokens, self._parents)
        return DraftTree(tree, self._choices, self._distributions)

    def _token(self, node: int) -> int:
        return self._tokens[node - len(self._given) - 1]
