"""The best tree of a fixed shape for every width, by measured accuracy (Ghidorah, III-C1).

A node is accepted along with all before it with the product of the accuracies along its path, and
the accepted tokens of a tree are expected to be the sum of that over its nodes. So the best tree
takes the nodes with the highest products, one by one (Medusa, Cai et al. 2024; Sequoia, Chen et
al. 2024). But what was right once is more often right again than a product says, and drafts begin
mostly where one before was wrong. So the search goes on with the verifications that the answers
would have taken: leaves move, and siblings swap what hangs below them, as long as that saves some.
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
"""How many standard errors of its mean over answers a saving must be. With the shipped pair a
search that takes any saving makes accepted paths longer by 0.7 to 3 % on the calibration text, and
shorter on other text; at two standard errors it is 0.2 to 1.2 %, and up to 0.5 % on other text."""
NUM_CANDIDATES: Final = 8
"""How many leaves the search tries to move, and to how many places, at a time."""


def best_trees(replay: Replay, max_width: int) -> list[TreeShape]:
    """The best tree of 1 node, of 2 and so on to ``max_width``; fewer if there are no more nodes.

    A function of its arguments alone.
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
    """The ``count`` paths with the highest products of ``accuracies`` ``[depth, ranks]``, the best
    first; fewer if there are no more.

    ``accuracies`` never rise with the rank. So the first n of the paths are a tree for any n, the
    one of n nodes of which most tokens are expected to be accepted.
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
    """The product of ``accuracies`` along ``path``."""
    return float(np.prod(accuracies[range(len(path)), path]))


def expected_length(accuracies: Floats, shape: TreeShape) -> float:
    """Tokens that a verification of a tree is expected to yield, the target's own included."""
    return 1 + math.fsum(product(accuracies, path) for path in shape.paths())


def improved(replay: Replay, tree: Paths) -> Paths:
    """``tree`` after all moves that save verifications, one after the other, the best first."""
    while True:
        better = _better(replay, tree, [*_with_leaf_moved(replay, tree), *_with_swap(tree)])
        if better == tree:
            return tree
        tree = better


def _better(replay: Replay, tree: Paths, others: Collection[Paths]) -> Paths:
    """The one of ``others`` that saves most verifications over ``tree``; ``tree`` if what it saves
    is nothing, or no more than chance might."""
    rounds = replay.num_rounds(replay.accepted(tree))
    best, most = tree, 0
    for other in others:
        saved = rounds - replay.num_rounds(replay.accepted(other))
        total = int(saved.sum())
        if total > most and total >= SIGNIFICANCE * math.sqrt(float((saved**2).sum())):
            best, most = other, total
    return best


def places(tree: Collection[RankPath], max_depth: int) -> Iterator[RankPath]:
    """Where ``tree`` may get a node: a node's next child."""
    for parent in [(), *tree]:
        rank = next(rank for rank in range(NUM_RANKS + 1) if (*parent, rank) not in tree)
        if rank < NUM_RANKS and len(parent) < max_depth:
            yield (*parent, rank)


def _leaves(tree: Paths) -> Iterator[RankPath]:
    """The nodes that ``tree`` can do without: without children and later siblings."""
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
    """Trees in which two siblings in a row have swapped what hangs below them."""
    for path in sorted(tree):
        other = (*path[:-1], path[-1] + 1)
        if other in tree:
            ours, theirs = _below(tree, path), _below(tree, other)
            kept = tree - {(*path, *end) for end in ours} - {(*other, *end) for end in theirs}
            if ours != theirs:
                yield kept | {(*path, *end) for end in theirs} | {(*other, *end) for end in ours}


def _below(tree: Paths, path: RankPath) -> set[RankPath]:
    """The paths of ``tree`` that go on from ``path``, from there on."""
    size = len(path)
    return {each[size:] for each in tree if len(each) > size and each[:size] == path}


def _by_use(replay: Replay, tree: Paths, paths: Iterable[RankPath]) -> list[RankPath]:
    """``paths`` by how often they would be accepted where drafts of ``tree`` begin, least first."""
    begins = replay.drafted_at(replay.accepted(tree))
    return sorted(paths, key=lambda path: (int(replay.reached(path)[begins].sum()), path))
