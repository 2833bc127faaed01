"""Drafts made without an engine."""

from __future__ import annotations

from collections.abc import Iterator

from specmesh.decoding.sampling import Sampling
from specmesh.decoding.trees.tree import TokenTree
from specmesh.inference.model import SequenceState
from specmesh.inference.service.growth import DraftShape, GrowingDraft, TreeLevel


def grow(
    sequence: SequenceState,
    tree: TokenTree,
    prefix_length: int,
    shape: DraftShape,
    sampling: Sampling,
) -> Iterator[TreeLevel]:
    """The levels of a draft below ``sequence``'s prefix, but for an empty one at its end."""
    growth = GrowingDraft(tree, prefix_length, shape, sampling)
    while not growth.ended:
        size = len(growth.tree)
        level = growth.grow(sequence.score(growth.tree))
        if len(growth.tree) > size:
            yield level
