"""Locally typical sampling."""

from __future__ import annotations

import math

import numpy as np

from specmesh.decoding.logits_row import LogitsRow

_PER_NAT = 64.0
_BUCKETS = 1 << 11
"""Tokens farther from the entropy than this many ``_PER_NAT`` share the last bucket."""


def most_typical(row: LogitsRow, share: float) -> LogitsRow:
    """Return ``row`` with the smallest set of its most typical tokens that has ``share`` of the
    total: those whose information is closest to the entropy (Meister et al. 2023, section 4). All
    tokens that are as typical as the last of them are kept.

    A large vocabulary is computed in float32, and no more of it is sorted than one bucket of tokens
    that are about as typical as each other.
    """
    dtype = np.float32 if row.is_large else np.float64
    logs = row.rough_logs(row.logits, np.empty(row.logits.shape, dtype))
    weights = np.exp(logs)
    total, entropy = row.total_and_entropy()
    distances = np.abs(np.add(logs, entropy - math.log(total), out=logs), out=logs)
    # Bounded first, since the product may overflow.
    buckets = (np.minimum(distances, (_BUCKETS - 1) / _PER_NAT) * _PER_NAT).astype(np.intp)
    mass = np.bincount(buckets, weights, minlength=_BUCKETS).cumsum()
    goal = share * float(mass[-1])
    last = min(int(mass.searchsorted(goal)), _BUCKETS - 1)
    near = np.flatnonzero(buckets == last)
    near = near[np.argsort(distances[near], kind="stable")]
    reached = weights[near].cumsum(dtype=np.float64) + (mass[last - 1] if last else 0.0)
    farthest = near[min(int(reached.searchsorted(goal)), near.size - 1)]
    return row.only(np.flatnonzero(distances <= distances[farthest]))
