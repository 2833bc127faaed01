"""Which children the nodes of a draft get, for drafters of tests."""

from __future__ import annotations

from collections.abc import Sequence

from specmesh.decoding.drafting import Drawn
from specmesh.decoding.tree_growth import Guess, is_last, next_level
from specmesh.mesh.v1alpha1 import drafter_pb2
from specmesh.serving.wire import MAX_TREE_NODES, read_growth, read_stop


class DraftShaper:
    """The chains or the tree that a request asks for; without ``growth`` no chain stops early."""

    def __init__(self, request: drafter_pb2.DraftRequest) -> None:
        self.tips = list(request.from_nodes) or [0]
        """The nodes to draft from."""
        self.ended = False
        self._growth = self._stop = None
        self._num_given = self._size = len(request.tree.token_ids)
        if request.HasField("growth"):
            self._growth = read_growth(request.growth, MAX_TREE_NODES - self._size)
            self._stop = read_stop(request.stop)
        self._chances = [1.0] * len(self.tips)

    @property
    def num_candidates(self) -> int:
        """How many tokens to draw below each tip."""
        if self._growth is None:
            return 1
        return self._growth.max_nodes - (self._size - self._num_given)

    def grow(self, drawn: Sequence[Drawn]) -> list[tuple[int, ...]]:
        """The children for each tip; they are the next tips."""
        guesses = [Guess(*each) for each in zip(self._chances, drawn, strict=True)]
        level = next_level(guesses, self._stop, self._growth, self._size - self._num_given)
        before = self._size
        self._size += sum(len(children.token_ids) for children in level)
        self.tips = list(range(before + 1, self._size + 1))
        self._chances = [chance for children in level for chance in children.chances]
        num_nodes = self._size - self._num_given
        self.ended = not self.tips or is_last(level, self._stop, self._growth, num_nodes)
        return [children.token_ids for children in level]
