"""How a draft grows: level by level, every open node getting its children in one forward."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specmesh.decoding.drafting import Choices, Drawn, draw_children
from specmesh.decoding.sampling import Distribution, Sampling
from specmesh.decoding.tree import TokenTree
from specmesh.inference.model import Logits


@dataclass(frozen=True, slots=True)
class Shape:
    """What to draft below ``from_nodes``: ``depth`` levels, ``branching[i]`` children per node
    at level i and one beyond the list; and of how many choices to tell per node."""

    from_nodes: tuple[int, ...]
    depth: int
    branching: tuple[int, ...]
    num_choices: int = 0

    @property
    def num_nodes(self) -> int:
        """How many nodes are added at most."""
        width, nodes = len(self.from_nodes), 0
        for level in range(self.depth):
            width *= self.children_at(level)
            nodes += width
        return nodes

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


class Growth:
    """A draft in the making: the logits of one forward make one level."""

    def __init__(
        self, tree: TokenTree, prefix_length: int, shape: Shape, sampling: Sampling
    ) -> None:
        self.tree = tree
        """All nodes so far, those drafted earlier first."""
        self.num_levels = 0
        """How many levels have been added."""
        self._prefix_length = prefix_length
        self._shape = shape
        self._sampling = sampling
        self._frontier: Sequence[int] = shape.from_nodes
        self._first_row = 0  # the node that the first row of the next forward belongs to

    @property
    def ended(self) -> bool:
        """Whether nothing is to be added any more: all levels are there, or guesses ran out."""
        return self.num_levels == self._shape.depth or not self._frontier

    def grow(self, rows: Logits) -> Level:
        """Add the level that ``rows`` give, those after the nodes of ``tree`` not scored before.

        It is empty, and the draft has ended, if the model has no guess.
        """
        token_ids: list[int] = []
        parents: list[int] = []
        distributions: dict[int, Distribution] = {}
        choices: dict[int, Choices] = {}
        for node in self._frontier:
            row = rows[node - self._first_row]
            if row.max() == -np.inf:
                continue  # the model has no guess here
            drawn = self._drawn(row, node)
            token_ids += drawn.children
            parents += [node] * len(drawn.children)
            if drawn.distribution is not None:
                distributions[node] = drawn.distribution
            if drawn.choices is not None:
                choices[node] = drawn.choices
        self.num_levels += 1
        self._first_row = len(self.tree) + 1
        self._frontier = range(self._first_row, self._first_row + len(token_ids))
        self.tree = self.tree.extend(token_ids, parents)
        return Level(self.tree, distributions, choices)

    def _drawn(self, row: Logits, node: int) -> Drawn:
        return draw_children(
            row,
            self._sampling,
            self._prefix_length + self.tree.depth(node),
            self._shape.children_at(self.num_levels),
            self._shape.num_choices,
        )
