"""What trees of a fixed shape would have saved on answers that are known: no model is needed.

Along a target's answer it is written down which of the drafter's choices each token was. From that
follows, for any shape and any position, how much of a tree there is accepted: as far as its nodes
are the choices that were right.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from specmesh.decoding.trees.shape import RankPath, TreeShape

NUM_RANKS: Final = 16
"""How many of a drafter's choices are told apart."""
MISSED: Final = NUM_RANKS
"""The rank of a token that is none of them."""
UNKNOWN: Final = -1
"""The rank after the end of an answer."""

_NUM_REMEMBERED: Final = 4096
"""Paths for which it is remembered where they are accepted, a byte for each token."""

AnswerRanks = NDArray[np.int8]
"""``[tokens, depth]`` of one answer: the rank among the drafter's choices, in a draft that begins
at a token, of that token, of the one after it and so on, each given those before it."""


class Replay:
    """Answers, at least one, as a drafter guessed them: their ``ranks`` are of one depth."""

    def __init__(self, ranks: Sequence[AnswerRanks]) -> None:
        self._ranks = np.concatenate(ranks)
        ends = np.cumsum([len(each) for each in ranks])
        self._begins = ends - [len(each) for each in ranks]
        self._end_of = np.repeat(ends, [len(each) for each in ranks])
        self.reached = lru_cache(_NUM_REMEMBERED)(self._reached)

    @property
    def num_tokens(self) -> int:
        """How many tokens the answers have together."""
        return len(self._ranks)

    @property
    def max_depth(self) -> int:
        """How far a draft can reach."""
        return int(self._ranks.shape[1])

    def accuracies(self) -> NDArray[np.float64]:
        """``[depth, NUM_RANKS]``: how often the target's token is the drafter's choice of that
        rank, where all before it in the draft were among its choices; over drafts that begin at
        any position. A later choice is never more accurate than an earlier one."""
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
        """``[tokens]``: how many tokens are accepted of a tree with these ``paths``, by the
        position at which it is drafted."""
        total = np.zeros(self.num_tokens, dtype=np.int64)
        for path in paths:
            total += self.reached(path)
        return total

    def drafted_at(self, accepted: NDArray[np.int64]) -> NDArray[np.bool_]:
        """``[tokens]``: whether a draft begins at a position, if of each as much is accepted as
        ``accepted`` says: each begins where what the verification before it yielded ends."""
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
        """``[answers]``: how many verifications each answer took."""
        return np.add.reduceat(self.drafted_at(accepted), self._begins, dtype=np.int64)

    def acceptance_length(self, shape: TreeShape) -> float:
        """Tokens that a verification yields on average, the target's own included, with trees of
        one ``shape``."""
        return self.num_tokens / int(self.num_rounds(self.accepted(shape.paths())).sum())

    def _reached(self, path: RankPath) -> NDArray[np.bool_]:
        """``[tokens]``: whether all of ``path`` is accepted, by the position it is drafted at."""
        own: NDArray[np.bool_] = self._ranks[:, len(path) - 1] == path[-1]
        return own & self.reached(path[:-1]) if len(path) > 1 else own


def _never_rising(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The closest sequence that never rises (isotonic regression, pooling neighbours)."""
    pools: list[tuple[float, int]] = []
    for value in values.tolist():
        pools.append((value, 1))
        while len(pools) > 1 and pools[-2][0] < pools[-1][0]:
            (left, m), (right, n) = pools[-2:]
            pools[-2:] = [((left * m + right * n) / (m + n), m + n)]
    return np.repeat([mean for mean, _ in pools], [count for _, count in pools])
