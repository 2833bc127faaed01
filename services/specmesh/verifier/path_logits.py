"""The logits after the nodes of one path through a tree, of which each is computed once a verdict
needs it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from specmesh.decoding.trees.tree import TokenTree


class NotComputed(Exception):
    """The verdict needs the logits after ``node``."""

    def __init__(self, node: int) -> None:
        super().__init__(f"the logits after node {node} are not computed yet")
        self.node = node


class PathLogits:
    """``NodeLogits`` of ``tree``, of which those that are missing raise ``NotComputed``."""

    def __init__(self, tree: TokenTree, vocab_size: int) -> None:
        self.shape = (len(tree) + 1, vocab_size)
        self._rows: dict[int, NDArray[np.float32]] = {}

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, node: int) -> NDArray[np.float32]:
        """Return the row after ``node``."""
        if node not in self._rows:
            raise NotComputed(node)
        return self._rows[node]

    def add(self, node: int, row: NDArray[np.float32]) -> None:
        """Keep a copy of the ``row`` ``[vocab]`` after ``node``."""
        self._rows[node] = row.copy()
