"""Growth of a draft, level by level, each from the logits of a forward pass or by its grammar."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specmesh.decoding.drafting import Drawn, TopK, draw_children, forced_child
from specmesh.decoding.predict.lookahead import DraftStop
from specmesh.decoding.processing.processor import LogitProcessor
from specmesh.decoding.sampling import Distribution, Sampling
from specmesh.decoding.trees.growth import Children, Guess, TreeGrowth, is_last, next_level
from specmesh.decoding.trees.shape import TreeShape
from specmesh.decoding.trees.tree import TokenTree
from specmesh.inference.model import Logits

MAX_DEPTH = 256
MAX_CHOICES = 16


@dataclass(frozen=True, slots=True)
class DraftShape:
    """The draft to make below ``from_nodes``: ``depth`` levels of one child per node, or of as many
    as ``growth`` or ``fixed`` determines. ``num_choices`` are sent per node, but with ``growth`` no
    more than the node has children. ``stop`` says when to end early. ``vocab_size`` is None for the
    drafter's own vocabulary."""

    from_nodes: tuple[int, ...]
    depth: int
    num_choices: int = 0
    stop: DraftStop | None = None
    vocab_size: int | None = None
    growth: TreeGrowth | None = None
    fixed: TreeShape | None = None

    @property
    def num_nodes(self) -> int:
        """The most nodes that are added."""
        if self.growth is not None:
            return self.growth.max_nodes
        if self.fixed is not None:
            return len(self.from_nodes) * self.fixed.num_nodes
        return len(self.from_nodes) * self.depth


@dataclass(frozen=True, slots=True)
class _Tip:
    """A node to draft from: the ``chance``, according to ``stop``, that all tokens up to it are
    accepted, and its number in a ``fixed`` shape."""

    node: int
    chance: float = 1.0
    place: int = 0


@dataclass(frozen=True, slots=True)
class TreeLevel:
    """The tree with one more level and, by parent, the distributions that the new nodes were drawn
    from (rejection mode only) and the drafter's choices (if requested)."""

    tree: TokenTree
    distributions: dict[int, Distribution]
    choices: dict[int, TopK]


class GrowingDraft:
    """A draft under construction: the logits of a forward pass add a level, and so does a grammar
    that leaves no choice.

    Invariant: ``tree`` only grows at its end, so that each level can be sent when it is complete.
    """

    def __init__(
        self,
        tree: TokenTree,
        shape: DraftShape,
        sampling: Sampling,
        processor: LogitProcessor,
        path: tuple[int, ...] = (),
    ) -> None:
        """Begin with ``tree``, which hangs from the prefix of ``processor`` and then ``path``."""
        self.tree = tree
        """All nodes so far, those of the request first."""
        self.num_levels = 0
        """The number of levels added so far."""
        self._processor = processor
        self._path = path
        self._shape = shape
        self._sampling = sampling
        self._frontier = [_Tip(node) for node in shape.from_nodes]
        self._stopped = False
        self._num_given = len(tree)
        self._num_scored = 0  # the first nodes, node 0 included, which forward passes had

    @property
    def ended(self) -> bool:
        """True once nothing more will be added: all levels are there, the model has no guess, or
        going on isn't worth it."""
        return self.num_levels == self._shape.depth or not self._frontier or self._stopped

    @property
    def likeliest_scored(self) -> tuple[int, ...]:
        """The likeliest path, as far as its nodes have been through a forward pass."""
        nodes = []
        children = self.tree.children(0)
        while children and children[0] < self._num_scored:
            nodes.append(children[0])
            children = self.tree.children(children[0])
        return tuple(nodes)

    def grow_forced(self) -> TreeLevel | None:
        """Add a level without a forward pass if the grammar leaves just one token below every node
        drafted from, else return None. It is the level that ``grow`` would add, and the nodes go
        through the next forward pass together."""
        if not self._processor.may_force:
            return None
        guesses = []
        for tip in self._frontier:
            token = self._processor.forced(self._path_to(tip))
            if token is None or token >= (self._shape.vocab_size or math.inf):
                return None
            num_choices = self._num_choices(self._num_children(tip))
            guesses.append(Guess(tip.chance, forced_child(token, self._sampling, num_choices)))
        return self._add(self._frontier, guesses)

    def grow(self, rows: Logits) -> TreeLevel:
        """Add a level from ``rows``, the logits after the nodes of ``tree`` not scored before.

        The level is empty, and the draft has ended, if the model has no guess or none is worth
        adding.
        """
        tips, guesses = [], []
        before = self._processor.prefix_length + len(self._path)
        for tip in self._frontier:
            row = rows[tip.node - self._num_scored][: self._shape.vocab_size]
            if self._processor.changes_logits:
                row = self._processor.row(row, self._path_to(tip))
            if row[0] == -np.inf and row.max() == -np.inf:
                continue  # the model has no guess here
            tips.append(tip)
            position = before + self.tree.depth(tip.node)
            guesses.append(Guess(tip.chance, self._drawn(row, position, tip)))
        self._num_scored = len(self.tree) + 1
        return self._add(tips, guesses)

    def _path_to(self, tip: _Tip) -> tuple[int, ...]:
        return (*self._path, *self.tree.tokens_on(self.tree.path(tip.node)))

    def _add(self, tips: Sequence[_Tip], guesses: Sequence[Guess]) -> TreeLevel:
        """Add the level that ``guesses`` make below ``tips``."""
        stop, growth, size = self._shape.stop, self._shape.growth, len(self.tree)
        level = next_level(guesses, stop, growth, size - self._num_given)
        self.num_levels += 1
        self.tree = self.tree.extend(
            [token for children in level for token in children.token_ids],
            [tip.node for tip, children in zip(tips, level, strict=True) for _ in children.chances],
        )
        self._frontier = self._next_tips(tips, level, size + 1)
        self._stopped = is_last(level, stop, growth, len(self.tree) - self._num_given)
        counts = [len(children.token_ids) for children in level]
        return self._level([tip.node for tip in tips], [each.drawn for each in guesses], counts)

    def _next_tips(self, tips: Sequence[_Tip], level: Sequence[Children], first: int) -> list[_Tip]:
        """Return the nodes of ``level``, which begin with ``first``, without those that will get no
        children."""
        chances = [chance for children in level for chance in children.chances]
        fixed = self._shape.fixed
        if fixed is None:
            return [_Tip(node, chance) for node, chance in enumerate(chances, first)]
        places = [
            place
            for tip, children in zip(tips, level, strict=True)
            for place in fixed.children(tip.place)[: len(children.chances)]
        ]
        return [
            _Tip(node, chance, place)
            for node, (chance, place) in enumerate(zip(chances, places, strict=True), first)
            if fixed.children(place)
        ]

    def _level(
        self, nodes: Sequence[int], drawn: Sequence[Drawn], counts: Sequence[int]
    ) -> TreeLevel:
        """Return the level in which each of ``nodes`` gets the first ``counts`` of the tokens
        ``drawn`` for it."""
        distributions: dict[int, Distribution] = {}
        choices: dict[int, TopK] = {}
        for node, each, num_children in zip(nodes, drawn, counts, strict=True):
            num_choices = self._shape.num_choices
            if self._shape.growth is not None:
                num_choices = min(num_choices, num_children)
            if each.distribution is not None and num_children:
                distributions[node] = each.distribution
            if each.choices is not None and num_choices:
                choices[node] = each.choices.first(num_choices)
        return TreeLevel(self.tree, distributions, choices)

    def _drawn(self, row: Logits, position: int, tip: _Tip) -> Drawn:
        num_children = self._num_children(tip)
        num_choices = self._num_choices(num_children)
        return draw_children(row, self._sampling, position, num_children, num_choices)

    def _num_children(self, tip: _Tip) -> int:
        """Return the most children that ``tip`` may get."""
        if self._shape.growth is not None:
            return self._shape.growth.max_nodes - (len(self.tree) - self._num_given)
        if self._shape.fixed is not None:
            return len(self._shape.fixed.children(tip.place))
        return 1

    def _num_choices(self, num_children: int) -> int:
        if self._shape.stop is None:
            return self._shape.num_choices
        return max(self._shape.num_choices, num_children)
