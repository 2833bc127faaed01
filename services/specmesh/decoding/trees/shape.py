"""Trees of a fixed shape, known before anything is drafted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Self, TypeAlias

from specmesh.decoding.errors import InvalidField

RankPath: TypeAlias = tuple[int, ...]
"""The indices of the drafter's choices that lead to a node, from the prefix down; the first choice
is 0."""


@dataclass(frozen=True, slots=True)
class TreeShape:
    """A tree's shape: a number of children for each node, since a node's n-th child is the
    drafter's n-th choice there.

    Nodes are numbered level by level and siblings in order, with 0 for the end of the prefix.
    ``num_children`` are the numbers for node 0, 1 and so on; later nodes have no children. There is
    at least one node, and the last number is not 0. Otherwise construction raises ``InvalidField``.

    A second choice never comes without the first: it would hardly pay, and in rejection mode a
    drawn token must not be left out (see ``orchestrator/strategies/base.py``).
    """

    num_children: tuple[int, ...]
    _first_children: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.num_children or self.num_children[-1] == 0:
            raise InvalidField("num_children", "must end with a node that has children")
        firsts = tuple(accumulate(self.num_children, initial=1))
        for node, (count, first) in enumerate(zip(self.num_children, firsts, strict=False)):
            if count < 0 or first <= node:
                raise InvalidField("num_children", f"gives children to missing node {node}")
        object.__setattr__(self, "_first_children", firsts)

    @classmethod
    def chain(cls, length: int) -> Self:
        """Return the tree without branches that has ``length`` nodes, at least one."""
        return cls((1,) * length)

    @classmethod
    def of(cls, paths: Iterable[RankPath]) -> Self:
        """Return the shape whose nodes have these ``paths``. Each path requires those of the nodes
        before it and of its earlier siblings."""
        nodes = [(), *sorted(paths, key=lambda path: (len(path), path))]
        counts = dict.fromkeys(nodes, 0)
        for path in nodes[1:]:
            counts[path[:-1]] += 1
        listed = list(counts.values())
        while listed and not listed[-1]:
            del listed[-1]
        return cls(tuple(listed))

    @property
    def num_nodes(self) -> int:
        """The number of nodes, node 0 not counted."""
        return sum(self.num_children)

    @property
    def depth(self) -> int:
        """The depth of the deepest node."""
        return max(map(len, self.paths()))

    def children(self, node: int) -> range:
        """Return the nodes that hang from ``node``."""
        if node >= len(self.num_children):
            return range(0)
        first = self._first_children[node]
        return range(first, first + self.num_children[node])

    def paths(self) -> tuple[RankPath, ...]:
        """Return the path to each node, from node 1 on."""
        paths: list[RankPath] = [()]
        for node, count in enumerate(self.num_children):
            paths += [(*paths[node], rank) for rank in range(count)]
        return tuple(paths[1:])
