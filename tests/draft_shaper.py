"""Which children the nodes of a draft get, for drafters of tests."""

from __future__ import annotations

from collections.abc import Sequence

from specmesh.decoding.drafting import Drawn
from specmesh.decoding.trees.growth import Guess, is_last, next_level
from specmesh.decoding.trees.shape import TreeShape
from specmesh.mesh.v1alpha1 import drafter_pb2
from specmesh.serving.codec.draft_rules import read_growth, read_stop, read_tree_shape
from specmesh.serving.codec.wire import MAX_TREE_NODES


class DraftShaper:
    """The chains or the tree that a request asks for; without ``growth`` no chain stops early."""

    def __init__(self, request: drafter_pb2.DraftRequest) -> None:
        self.tips = list(request.from_nodes) or [0]
        """The nodes to draft from."""
        self.ended = False
        self._growth = self._stop = self._fixed = None
        self._num_given = self._size = len(request.tree.token_ids)
        if request.HasField("growth"):
            self._growth = read_growth(request.growth, MAX_TREE_NODES - self._size)
            self._stop = read_stop(request.stop)
        if request.HasField("shape"):
            self._fixed = read_tree_shape(request.shape, MAX_TREE_NODES - self._size)
        self._chances = [1.0] * len(self.tips)
        self._places = [0] * len(self.tips)
        """In the fixed shape."""

    @property
    def num_candidates(self) -> int:
        """How many tokens to draw below each tip, at most."""
        if self._fixed is not None:
            return max(len(self._fixed.children(place)) for place in self._places)
        if self._growth is None:
            return 1
        return self._growth.max_nodes - (self._size - self._num_given)

    def grow(self, drawn: Sequence[Drawn]) -> list[tuple[int, ...]]:
        """The children for each tip; they are the next tips."""
        if self._fixed is not None:
            return self._grow_fixed(self._fixed, drawn)
        guesses = [Guess(*each) for each in zip(self._chances, drawn, strict=True)]
        level = next_level(guesses, self._stop, self._growth, self._size - self._num_given)
        before = self._size
        self._size += sum(len(children.token_ids) for children in level)
        self.tips = list(range(before + 1, self._size + 1))
        self._chances = [chance for children in level for chance in children.chances]
        num_nodes = self._size - self._num_given
        self.ended = not self.tips or is_last(level, self._stop, self._growth, num_nodes)
        return [children.token_ids for children in level]

    def _grow_fixed(self, fixed: TreeShape, drawn: Sequence[Drawn]) -> list[tuple[int, ...]]:
        level, tips, places = [], [], []
        for place, each in zip(self._places, drawn, strict=True):
            inner = fixed.children(place)
            level.append(each.children[: len(inner)])
            for child, _ in zip(inner, level[-1], strict=False):
                self._size += 1
                if fixed.children(child):
                    tips.append(self._size)
                    places.append(child)
        self.tips, self._places = tips, places
        self.ended = not tips
        return level
