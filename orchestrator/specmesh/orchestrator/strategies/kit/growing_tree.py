"""A draft under way: chains that grow below some nodes of a tree."""

from __future__ import annotations

from specmesh.decoding.drafting import TopK
from specmesh.decoding.sampling import Distribution
from specmesh.decoding.tree import EMPTY, TokenTree
from specmesh.orchestrator.strategies.base import Drafted, TaskId
from specmesh.orchestrator.strategies.kit.draft_chain import DraftChain


class GrowingTree:
    """The nodes of one draft task. Below each node that is drafted from grows a single chain."""

    def __init__(self, task: TaskId, tree: TokenTree = EMPTY) -> None:
        self.task = task
        self.ended = False
        self._tokens = list(tree.token_ids)
        self._child: dict[int, int] = {}
        self._choices: dict[int, TopK] = {}
        self._distributions: dict[int, Distribution] = {}

    def extend(self, event: Drafted) -> None:
        """Take in what was drafted."""
        for token, parent in zip(event.token_ids, event.parents, strict=True):
            self._tokens.append(token)
            self._child[parent] = len(self._tokens)
        self._choices |= event.choices
        self._distributions |= event.distributions
        self.ended |= event.last

    def child_with(self, node: int, token: int) -> int | None:
        """The drafted child of ``node``, if it carries ``token``."""
        child = self._child.get(node)
        return child if child is not None and self._tokens[child - 1] == token else None

    def chain_below(self, node: int) -> DraftChain:
        """What was drafted below ``node`` so far."""
        chain = DraftChain()
        while (child := self._child.get(node)) is not None:
            chain.tokens.append(self._tokens[child - 1])
            chain.choices.append(self._choices.get(node))
            chain.distributions.append(self._distributions.get(node))
            node = child
        return chain
