"""Which keys new tokens attend to: all of those committed, and of the new ones their ancestors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from specmesh.inference.engine.batch import AttentionMask, Group, Indexes

SPARSE_SHARE = 0.5
"""Ancestors are gathered if they are at most this share of the new keys; else to compute all
scores, and mask some, moves less."""


@dataclass(frozen=True, slots=True)
class Ancestors:
    """For each new token the keys it attends to, ``[width, depth]``; ``unused`` marks entries that
    only fill up a row, which repeat another one of it."""

    keys: Indexes
    unused: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Pattern:
    """Attention of one sequence's new tokens: its dense and its sparse part.

    All attend to the first ``committed`` keys. Of the ``length`` there are, the others are the new
    tokens' own: each attends to at least one of these, by ``ancestors``, or by ``mask``
    ``[width, length - committed]`` where ancestors are most of them. With neither there are none.
    """

    committed: int
    ancestors: Ancestors | None = None
    mask: AttentionMask | None = None


def pattern_of(group: Group) -> Pattern:
    """The pattern of a ``group`` of one sequence."""
    if group.attention_mask is None:
        return Pattern(group.length)
    attends = group.attention_mask[0]
    by_all = attends.all(axis=0)
    dense = group.length if by_all.all() else int(by_all.argmin())
    committed = min(dense, group.length - group.width)
    own = attends[:, committed:]
    counts = own.sum(axis=1)
    depth = int(counts.max())
    if depth > SPARSE_SHARE * own.shape[1]:
        return Pattern(committed, mask=own)
    keys = np.argsort(~own, axis=1, kind="stable")[:, :depth] + committed
    unused = np.arange(depth) >= counts[:, None]
    return Pattern(committed, Ancestors(np.where(unused, keys[:, :1], keys), unused))
