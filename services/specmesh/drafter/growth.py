"""How a draft grows: level by level, every open node getting its children in one forward."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from specmesh.decoding.drafting import draw_children
from specmesh.decoding.sampling import Distribution, Sampling
from specmesh.decoding.tree import TokenTree
from specmesh.inference.model import Scorer


@dataclass(frozen=True, slots=True)
class Level:
    """New nodes, numbered on from the tree before, and what they were drawn from by parent."""

    token_ids: tuple[int, ...]
    parents: tuple[int, ...]
    distributions: dict[int, Distribution]


@dataclass(frozen=True, slots=True)
class Shape:
    """What to draft: ``depth`` levels below ``from_nodes``, ``branching[i]`` children at level i
    (1 beyond the list)."""

    from_nodes: tuple[int, ...]
    depth: int
    branching: tuple[int, ...]

    def children_at(self, level: int) -> int:
        return self.branching[level] if level < len(self.branching) else 1


def grow(
    scorer: Scorer, tree: TokenTree, prefix_length: int, shape: Shape, sampling: Sampling
) -> Iterator[Level]:
    """Levels of the draft as they are made; fewer than asked for when guesses run out."""
    frontier: Sequence[int] = shape.from_nodes
    first_row = 0
    rows: dict[int, np.ndarray[tuple[int], np.dtype[np.float32]]] = {}
    for level in range(shape.depth):
        logits = scorer.score(tree)
        rows = {first_row + i: row for i, row in enumerate(logits)} | (rows if not level else {})
        first_row = len(tree) + 1
        token_ids: list[int] = []
        parents: list[int] = []
        distributions = {}
        for node in frontier:
            position = prefix_length + tree.depth(node)
            if not np.isfinite(rows[node]).any():
                continue  # the model has no guess here
            drawn, distribution = draw_children(
                rows[node], sampling, position, shape.children_at(level)
            )
            token_ids += drawn
            parents += [node] * len(drawn)
            if distribution is not None:
                distributions[node] = distribution
        if not token_ids:
            return
        frontier = range(len(tree) + 1, len(tree) + 1 + len(token_ids))
        tree = tree.extend(token_ids, parents)
        yield Level(tuple(token_ids), tuple(parents), distributions)
