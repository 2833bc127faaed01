"""Drafts made without an engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from specmesh.decoding.processing.processor import LogitProcessor
from specmesh.decoding.sampling import Sampling
from specmesh.decoding.trees.shape import TreeShape
from specmesh.decoding.trees.tree import TokenTree
from specmesh.inference.model import SequenceState
from specmesh.inference.service.growth import DraftShape, GrowingDraft, TreeLevel


def bushy(from_nodes: Sequence[int], depth: int, *counts: int, num_choices: int = 0) -> DraftShape:
    """A tree in which each node at level i has ``counts[i]`` children, and one beyond them."""
    children: list[int] = []
    width = 1
    for level in range(depth):
        count = counts[level] if level < len(counts) else 1
        children += [count] * width
        width *= count
    return DraftShape(tuple(from_nodes), depth, num_choices, fixed=TreeShape(tuple(children)))


def grow(
    sequence: SequenceState,
    tree: TokenTree,
    prefix: Sequence[int],
    shape: DraftShape,
    sampling: Sampling,
) -> Iterator[TreeLevel]:
    """The levels of a draft below ``sequence``'s ``prefix``, but for an empty one at its end."""
    processor = LogitProcessor(sampling, prefix)
    growth = GrowingDraft(tree, shape, sampling, processor)
    while not growth.ended:
        size = len(growth.tree)
        level = growth.grow(sequence.score(growth.tree))
        if len(growth.tree) > size:
            yield level
