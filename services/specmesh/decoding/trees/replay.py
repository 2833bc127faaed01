"""A replay of known answers with trees of a fixed shape, without a model, to measure their savings.

For each token of a target's answer, a record says which of the drafter's choices it was. So for any
shape and position, the accepted part of a tree is known: the path whose nodes are the correct
choices.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from specmesh.decoding.trees.shape import RankPath, TreeShape

NUM_RANKS: Final = 16
"""The number of a drafter's choices that are distinguished."""
MISSED: Final = NUM_RANKS
"""The rank of a token that is not among those choices."""
UNKNOWN: Final = -1
"""The rank after the end of an answer."""

_NUM_REMEMBERED: Final = 4096
"""The number of paths whose accepted positions are cached, at a byte per token."""

AnswerRanks = NDArray[np.int8]
"""The ranks ``[tokens, depth]`` of one answer. Row i is for a draft that begins at token i: the
ranks among the drafter's choices of that token, of the next one and so on, each given the tokens
before it."""


class Replay:
    """At least one answer with a drafter's guesses; all ``ranks`` have the same depth."""

    def __init__(self, ranks: Sequence[AnswerRanks]) -> None:
        self._ranks = np.concatenate(ranks)
        ends = np.cumsum([len(each) for each in ranks])
        self._begins = ends - [len(each) for each in ranks]
        self._end_of = np.repeat(ends, [len(each) for each in ranks])
        self.reached = lru_cache(_NUM_REMEMBERED)(self._reached)

    @property
    def num_tokens(self) -> int:
        """The total number of tokens in the answers."""
        return len(self._ranks)

    @property
    def max_depth(self) -> int:
        """The greatest depth of a draft."""
        return int(self._ranks.shape[1])

    def accuracies(self) -> NDArray[np.float64]:
        """Return ``[depth, NUM_RANKS]``: the rate at which the target's token is the drafter's
        choice of that rank if all tokens before it in the draft were among its choices, over drafts
        that begin at any position. A later choice is never more accurate than an earlier one."""
        found = np.zeros((self.max_depth, NUM_RANKS))
        alive = np.ones(self.num_tokens, dtype=np.bool_)
        for depth, ranks in enumerate(self._ranks.T):
            alive &= ranks != UNKNOWN
            if not alive.any():
                break
            counts = np.bincount(ranks[alive], minlength=NUM_RANKS + 1)[:NUM_RANKS]
            found[depth] = _never_rising(counts / alive.sum())
            alive &= ranks != MISSED
        return found

    def accepted(self, paths: Collection[RankPath]) -> NDArray[np.int64]:
        """Return ``[tokens]``: the number of accepted tokens of a tree with these ``paths``, by the
        position at which it is drafted."""
        total = np.zeros(self.num_tokens, dtype=np.int64)
        for path in paths:
            total += self.reached(path)
        return total

    def drafted_at(self, accepted: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return ``[tokens]``: whether a draft begins at a position, given the numbers of
        ``accepted`` tokens. A draft begins after the tokens that the verification before it
        yielded."""
        after = np.arange(self.num_tokens) + accepted + 1
        found = np.zeros(self.num_tokens, dtype=np.bool_)
        places = self._begins
        while len(places):
            found[places] = True
            ends = self._end_of[places]
            places = after[places]
            places = places[places < ends]
        return found

    def num_rounds(self, accepted: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return ``[answers]``: the number of verifications of each answer."""
        return np.add.reduceat(self.drafted_at(accepted), self._begins, dtype=np.int64)

    def acceptance_length(self, shape: TreeShape) -> float:
        """Return the mean number of tokens that a verification yields with trees of one ``shape``,
        the target's own included."""
        return self.num_tokens / int(self.num_rounds(self.accepted(shape.paths())).sum())

    def _reached(self, path: RankPath) -> NDArray[np.bool_]:
        """Return ``[tokens]``: whether all of ``path`` is accepted, by the position at which it is
        drafted."""
        own: NDArray[np.bool_] = self._ranks[:, len(path) - 1] == path[-1]
        return own & self.reached(path[:-1]) if len(path) > 1 else own


def _never_rising(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the closest sequence that never rises (isotonic regression, pooling neighbours)."""
    pools: list[tuple[float, int]] = []
    for value in values.tolist():
        pools.append((value, 1))
        while len(pools) > 1 and pools[-2][0] < pools[-1][0]:
            (left, m), (right, n) = pools[-2:]
            pools[-2:] = [((left * m + right * n) / (m + n), m + n)]
    return np.repeat([mean for mean, _ in pools], [count for _, count in pools])
