"""How a draft grows: level by level, each from the logits of one forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specmesh.decoding.drafting import Drawn, TopK, confidence, draw_children
from specmesh.decoding.lookahead import DraftStop
from specmesh.decoding.sampling import Distribution, Sampling
from specmesh.decoding.tree import TokenTree
from specmesh.inference.model import Logits


@dataclass(frozen=True, slots=True)
class DraftShape:
    """What to draft below ``from_nodes``: ``depth`` levels, with ``branching[i]`` children per node
    at level i and one beyond the list; ``num_choices`` choices to send per node; when to ``stop``
    early; how many tokens the vocabulary has, None for as many as the drafter's."""

    from_nodes: tuple[int, ...]
    depth: int
    branching: tuple[int, ...]
    num_choices: int = 0
    stop: DraftStop | None = None
    vocab_size: int | None = None

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
    """The tree with one more level and, by parent, what the new nodes were drawn from (rejection
    mode only) and the drafter's choices (if requested)."""

    tree: TokenTree
    distributions: dict[int, Distribution]
    choices: dict[int, TopK]


class GrowingDraft:
    """A draft under construction: the logits of each forward pass add a level.

    Invariant: ``tree`` only grows at its end, so that levels can be sent as they come.
    """

    def __init__(
        self, tree: TokenTree, prefix_length: int, shape: DraftShape, sampling: Sampling
    ) -> None:
        self.tree = tree
        """All nodes so far, those of the request first."""
        self.num_levels = 0
        """How many levels have been added."""
        self._prefix_length = prefix_length
        self._shape = shape
        self._sampling = sampling
        self._frontier: Sequence[int] = shape.from_nodes
        self._chances = [1.0] * len(shape.from_nodes)
        """By node of the frontier: how likely, by ``stop``, all tokens up to it are accepted."""
        self._stopped = False
        self._first_row = 0  # the node of the first row of the next forward pass

    @property
    def ended(self) -> bool:
        """Whether nothing is to be added any more: all levels are there, there is no guess, or
        going on isn't worth it."""
        return self.num_levels == self._shape.depth or not self._frontier or self._stopped

    def grow(self, rows: Logits) -> Level:
        """Add a level from ``rows``, the logits after the nodes of ``tree`` not scored before.

        It is empty, and the draft has ended, if the model has no guess.
        """
        token_ids: list[int] = []
        parents: list[int] = []
        distributions: dict[int, Distribution] = {}
        choices: dict[int, TopK] = {}
        chances: list[float] = []
        for node, chance in zip(self._frontier, self._chances, strict=True):
            row = rows[node - self._first_row][: self._shape.vocab_size]
            if row.max() == -np.inf:
                continue  # the model has no guess here
            drawn = self._drawn(row, node)
            token_ids += drawn.children
            parents += [node] * len(drawn.children)
            if drawn.distribution is not None:
                distributions[node] = drawn.distribution
            if drawn.choices is not None and self._shape.num_choices:
                choices[node] = drawn.choices.first(self._shape.num_choices)
            chances += [chance * self._acceptance(child, drawn) for child in drawn.children]
        self.num_levels += 1
        self._first_row = len(self.tree) + 1
        self._frontier = range(self._first_row, self._first_row + len(token_ids))
        self.tree = self.tree.extend(token_ids, parents)
        self._chances = chances
        stop = self._shape.stop
        self._stopped = stop is not None and max(chances, default=0.0) < stop.below
        return Level(self.tree, distributions, choices)

    def _drawn(self, row: Logits, node: int) -> Drawn:
        num_children, num_choices = (
            self._shape.children_at(self.num_levels),
            self._shape.num_choices,
        )
        if self._shape.stop is not None:
            num_choices = max(num_choices, num_children)
        position = self._prefix_length + self.tree.depth(node)
        return draw_children(row, self._sampling, position, num_children, num_choices)

    def _acceptance(self, child: int, drawn: Drawn) -> float:
        stop = self._shape.stop
        if stop is None:
            return 1.0
        return stop.acceptance(confidence(child, drawn.choices, drawn.distribution))
