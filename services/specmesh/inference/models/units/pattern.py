"""The keys that new tokens attend to: all committed keys, and those of their own ancestors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from specmesh.inference.engine.batch import AttentionMask, Group, Indexes

SPARSE_SHARE = 0.5
"""Ancestors are gathered if they are at most this share of the new keys; beyond it, computing all
scores and masking some moves less data."""


@dataclass(frozen=True, slots=True)
class Ancestors:
    """The keys that each new token attends to, ``[width, depth]``; ``unused`` marks entries that
    only pad a row, by repeating another entry of it."""

    keys: Indexes
    unused: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Pattern:
    """Attention of one sequence's new tokens: its dense and its sparse part.

    All tokens attend to the first ``committed`` of ``length`` keys. The other keys are those of the
    new tokens: each token attends to at least one of them, as given by ``ancestors``, or by
    ``mask`` ``[width, length - committed]`` if most of them are ancestors. Without either there are
    no other keys.
    """

    committed: int
    ancestors: Ancestors | None = None
    mask: AttentionMask | None = None


def pattern_of(group: Group) -> Pattern:
    """Return the pattern of a ``group`` of one sequence."""
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
