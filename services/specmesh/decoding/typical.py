"""Locally typical sampling."""

from __future__ import annotations

import numpy as np

from specmesh.decoding.logits_row import NO_WEIGHT, LogitsRow


def most_typical(row: LogitsRow, share: float) -> LogitsRow:
    """Return ``row`` with the smallest set of its most typical tokens that has ``share`` of the
    total: those whose information is closest to the entropy (Meister et al. 2023, section 4). All
    tokens that are as typical as the last of them are kept."""
    logs = row.scaled(row.logits)
    weights = np.exp(logs)
    total = float(weights.sum())
    logs -= np.log(total)
    # Not with BLAS, whose threads stall for milliseconds when the cores are busy.
    entropy = -float(np.einsum("i,i", weights / total, np.maximum(logs, NO_WEIGHT)))
    distances = np.abs(logs + entropy)
    for count in (min(_FEW, distances.size), distances.size):
        nearest = np.argpartition(distances, count - 1)[:count]
        nearest = nearest[np.argsort(distances[nearest], kind="stable")]
        mass = weights[nearest].cumsum()
        if mass[-1] >= share * total:
            break
    last = min(int(mass.searchsorted(share * total)), nearest.size - 1)
    return row.only(np.flatnonzero(distances <= distances[nearest[last]]))


_FEW = 512
"""The number of tokens that mostly have the share: sorting all would take much longer."""
