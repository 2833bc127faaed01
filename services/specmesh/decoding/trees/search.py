"""The best tree of a fixed shape for every width, by measured accuracy (Ghidorah, III-C1).

The probability that a node is accepted along with all nodes before it is about the product of the
accuracies along its path, and the expected number of accepted tokens of a tree is the sum of that
over its nodes. So the best tree takes the nodes with the highest products, one by one (Medusa, Cai
et al. 2024; Sequoia, Chen et al. 2024). But a drafter that was right once is more often right again
than a product says, and drafts mostly begin where the one before was wrong. So the search continues
with the verifications that the answers would have taken: it moves leaves, and swaps the subtrees of
siblings, as long as that saves some.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Iterable, Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from specmesh.decoding.trees.replay import NUM_RANKS, Replay
from specmesh.decoding.trees.shape import RankPath, TreeShape

Floats = NDArray[np.float64]
Paths = frozenset[RankPath]

SIGNIFICANCE: Final = 2.0
"""The number of standard errors of its mean over answers that a saving must have. With the shipped
pair a search that takes any saving makes accepted paths longer by 0.7 to 3 % on the calibration
text, and shorter on other text; at two standard errors it is 0.2 to 1.2 %, and up to 0.5 % on other
text."""
NUM_CANDIDATES: Final = 8
"""The number of leaves that the search tries to move at a time, and of places for each."""


def best_trees(replay: Replay, max_width: int) -> list[TreeShape]:
    """Return the best tree of 1 node, of 2 and so on to ``max_width``; fewer if there are no more
    nodes.

    The result depends only on the arguments.
    """
    likeliest = likeliest_paths(replay.accuracies(), max_width)
    trees: list[Paths] = []
    for width in range(1, len(likeliest) + 1):
        tree = frozenset(likeliest[:width])
        if trees:
            tree = _better(replay, tree, [_with_best_leaf(replay, trees[-1])])
        trees.append(improved(replay, tree))
    return [TreeShape.of(tree) for tree in trees]


def likeliest_paths(accuracies: Floats, count: int) -> list[RankPath]:
    """Return the ``count`` paths with the highest products of ``accuracies`` ``[depth, ranks]``,
    the best first; fewer if there are no more.

    ``accuracies`` never rise with the rank. So for any n, the first n of the paths are a tree: the
    one of n nodes with the most expected accepted tokens.
    """
    depth, num_ranks = accuracies.shape
    found: list[RankPath] = []
    waiting: list[tuple[float, RankPath]] = [(-float(accuracies[0, 0]), (0,))]
    while waiting and len(found) < count:
        _, path = heapq.heappop(waiting)
        found.append(path)
        following = [(*path[:-1], path[-1] + 1)] if path[-1] + 1 < num_ranks else []
        following += [(*path, 0)] if len(path) < depth else []
        for each in following:
            heapq.heappush(waiting, (-product(accuracies, each), each))
    return found


def product(accuracies: Floats, path: RankPath) -> float:
    """Return the product of ``accuracies`` along ``path``."""
    return float(np.prod(accuracies[range(len(path)), path]))


def expected_length(accuracies: Floats, shape: TreeShape) -> float:
    """Return the expected number of tokens that a verification of a tree yields, the target's own
    included."""
    return 1 + math.fsum(product(accuracies, path) for path in shape.paths())


def improved(replay: Replay, tree: Paths) -> Paths:
    """Return ``tree`` after all moves that save verifications, applied one at a time, the best
    first."""
    while True:
        better = _better(replay, tree, [*_with_leaf_moved(replay, tree), *_with_swap(tree)])
        if better == tree:
            return tree
        tree = better


def _better(replay: Replay, tree: Paths, others: Collection[Paths]) -> Paths:
    """Return the tree of ``others`` that saves the most verifications over ``tree``; return
    ``tree`` if no saving is significant."""
    rounds = replay.num_rounds(replay.accepted(tree))
    best, most = tree, 0
    for other in others:
        saved = rounds - replay.num_rounds(replay.accepted(other))
        total = int(saved.sum())
        if total > most and total >= SIGNIFICANCE * math.sqrt(float((saved**2).sum())):
            best, most = other, total
    return best


def places(tree: Collection[RankPath], max_depth: int) -> Iterator[RankPath]:
    """Yield the places where ``tree`` may get a node: the next child of each node."""
    for parent in [(), *tree]:
        rank = next(rank for rank in range(NUM_RANKS + 1) if (*parent, rank) not in tree)
        if rank < NUM_RANKS and len(parent) < max_depth:
            yield (*parent, rank)


def _leaves(tree: Paths) -> Iterator[RankPath]:
    """Yield the nodes that can be removed from ``tree``: those without children and later
    siblings."""
    for path in tree:
        if (*path, 0) not in tree and (*path[:-1], path[-1] + 1) not in tree:
            yield path


def _with_best_leaf(replay: Replay, tree: Paths) -> Paths:
    return tree | set(_by_use(replay, tree, places(tree, replay.max_depth))[-1:])


def _with_leaf_moved(replay: Replay, tree: Paths) -> Iterator[Paths]:
    for leaf in _by_use(replay, tree, _leaves(tree))[:NUM_CANDIDATES]:
        rest = tree - {leaf}
        free = set(places(rest, replay.max_depth)) - {leaf}
        for place in _by_use(replay, rest, free)[-NUM_CANDIDATES:]:
            yield rest | {place}


def _with_swap(tree: Paths) -> Iterator[Paths]:
    """Yield the trees in which two adjacent siblings have swapped their subtrees."""
    for path in sorted(tree):
        other = (*path[:-1], path[-1] + 1)
        if other in tree:
            ours, theirs = _below(tree, path), _below(tree, other)
            kept = tree - {(*path, *end) for end in ours} - {(*other, *end) for end in theirs}
            if ours != theirs:
                yield kept | {(*path, *end) for end in theirs} | {(*other, *end) for end in ours}


def _below(tree: Paths, path: RankPath) -> set[RankPath]:
    """Return the paths of ``tree`` below ``path``, relative to it."""
    size = len(path)
    return {each[size:] for each in tree if len(each) > size and each[:size] == path}


def _by_use(replay: Replay, tree: Paths, paths: Iterable[RankPath]) -> list[RankPath]:
    """Return ``paths`` sorted by how often they would be accepted where drafts of ``tree`` begin,
    least often first."""
    begins = replay.drafted_at(replay.accepted(tree))
    return sorted(paths, key=lambda path: (int(replay.reached(path)[begins].sum()), path))
