"""The best tree of a fixed shape for every width, by measured accuracy (Ghidorah, III-C1).

A node is accepted along with all before it with the product of the accuracies along its path, and
the accepted tokens of a tree are expected to be the sum of that over its nodes. So the best tree
takes the nodes with the highest products, one by one (Medusa, Cai et al. 2024; Sequoia, Chen et
al. 2024). But what was right once is more often right again than a product says. So the
search goes on with the acceptance length itself, measured on the answers that the accuracies are
of: leaves move, and siblings swap what hangs below them, as long as that makes it longer.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from specmesh.decoding.tree_shape import RankPath

Floats = NDArray[np.float64]


def likeliest_paths(accuracies: Floats, count: int) -> list[RankPath]:
    """The ``count`` paths with the highest products of ``accuracies`` ``[depth, ranks]``, the best
    first; fewer if there are no more.

    ``accuracies`` never rise with the rank. So the first n of the paths are a tree for any n, the
    one of n nodes of which most tokens are expected to be accepted.
    """
    depth, num_ranks = accuracies.shape
    found: list[RankPath] = []
    open_: list[tuple[float, RankPath]] = [(-float(accuracies[0, 0]), (0,))]
    while open_ and len(found) < count:
        worth, path = heapq.heappop(open_)
        found.append(path)
        level, rank = len(path) - 1, path[-1]
        if rank + 1 < num_ranks:
            sibling = (*path[:-1], rank + 1)
            heapq.heappush(open_, (-product(accuracies, sibling), sibling))
        if level + 1 < depth:
            heapq.heappush(open_, (worth * float(accuracies[level + 1, 0]), (*path, 0)))
    return found


def product(accuracies: Floats, path: RankPath) -> float:
    """The product of ``accuracies`` along ``path``."""
    return float(np.prod(accuracies[range(len(path)), path]))


def expected_length(accuracies: Floats, paths: Collection[RankPath]) -> float:
    """Tokens that a verification of a tree is expected to yield, the target's own included."""
    return 1 + sum(product(accuracies, path) for path in paths)
