"""How a draft grows: level by level, every open node getting its children in one forward."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from specmesh.decoding.drafting import Choices, draw_children
from specmesh.decoding.sampling import Distribution, Sampling
from specmesh.decoding.tree import TokenTree
from specmesh.inference.model import Scorer


@dataclass(frozen=True, slots=True)
class Shape:
    """What to draft below ``from_nodes``: ``depth`` levels, ``branching[i]`` children per node
    at level i and one beyond the list; and of how many choices to tell per node."""

    from_nodes: tuple[int, ...]
    depth: int
    branching: tuple[int, ...]
    num_choices: int = 0

    def children_at(self, level: int) -> int:
        """How many children each node gets at ``level``."""
        return self.branching[level] if level < len(self.branching) else 1


@dataclass(frozen=True, slots=True)
class Level:
    """The tree with one more level; by parent, what the new nodes were drawn from (rejection
    mode only) and what else could have been (if asked for)."""

    tree: TokenTree
    distributions: dict[int, Distribution]
    choices: dict[int, Choices]


def grow(
    scorer: Scorer, tree: TokenTree, prefix_length: int, shape: Shape, sampling: Sampling
) -> Iterator[Level]:
    """Levels of the draft as they are made; fewer than asked for when guesses run out."""
    frontier: Sequence[int] = shape.from_nodes
    first_row = 0  # the node that the first row of the next forward belongs to
    for depth in range(shape.depth):
        rows = scorer.score(tree)
        token_ids: list[int] = []
        parents: list[int] = []
        distributions: dict[int, Distribution] = {}
        choices: dict[int, Choices] = {}
        for node in frontier:
            row = rows[node - first_row]
            if row.max() == -np.inf:
                continue  # the model has no guess here
            position = prefix_length + tree.depth(node)
            count = shape.children_at(depth)
            drawn = draw_children(row, sampling, position, count, shape.num_choices)
            token_ids += drawn.children
            parents += [node] * len(drawn.children)
            if drawn.distribution is not None:
                distributions[node] = drawn.distribution
            if drawn.choices is not None:
                choices[node] = drawn.choices
        if not token_ids:
            return
        first_row = len(tree) + 1
        frontier = range(first_row, first_row + len(token_ids))
        tree = tree.extend(token_ids, parents)
        yield Level(tree, distributions, choices)
