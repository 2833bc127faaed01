"""The paths of a tree: vLLM scores only chains, so each path is a request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specmesh.decoding.trees.tree import TokenTree
from specmesh.inference.model import Logits
from specmesh.inference.models.vllm.core import Part


@dataclass(frozen=True, slots=True)
class Path:
    """The path down to ``leaf``, read for the rows of its last ``nodes``."""

    leaf: int
    nodes: tuple[int, ...]


def new_paths(tree: TokenTree, num_scored: int) -> list[Path]:
    """Return paths through all nodes except the first ``num_scored`` (node 0 counts). Each of these
    nodes is among the ``nodes`` of exactly one path."""
    if tree.is_chain:
        nodes = tuple(range(num_scored, len(tree) + 1))
        return [Path(len(tree), nodes)] if nodes else []
    paths: list[Path] = []
    told: set[int] = set()
    for leaf in range(num_scored, len(tree) + 1):
        if not tree.children(leaf):
            new = [each for each in (0, *tree.path(leaf)) if each >= num_scored]
            paths.append(Path(leaf, tuple(each for each in new if each not in told)))
            told.update(new)
    return paths


class PathRead:
    """The rows of ``nodes``, which vLLM returns from the request's token ``first_row`` on."""

    def __init__(self, nodes: Sequence[int], first_row: int) -> None:
        self.nodes = nodes
        self.rows: Logits = np.empty((0, 0), np.float32)
        """The rows received so far."""
        self._first_row = first_row

    @property
    def is_done(self) -> bool:
        """True once all rows are there."""
        return len(self.rows) == len(self.nodes)

    def receive(self, part: Part) -> None:
        """Take in the rows of a step. Rows come a second time after vLLM has preempted the
        request."""
        first = max(0, part.start - self._first_row)
        assert first <= len(self.rows)
        self.rows = np.concatenate([self.rows[:first], part.rows]) if first else part.rows
