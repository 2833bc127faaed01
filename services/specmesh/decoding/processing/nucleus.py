"""Nucleus sampling, top-p: the smallest set of likeliest tokens with a share of the total."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specmesh.decoding.logits_row import ROUGH, LogitsRow, Values

_BUCKETS = 256
_LIKELY = 384
"""The number of likeliest tokens that mostly hold the nucleus."""
_FEW_GROUPS = 512
"""Where more groups have a token that is as likely, weighing these tokens would take too long."""
_SLACK = 1e-9
"""More than the relative rounding errors of sums in float64."""


def nucleus(row: LogitsRow, share: float, *, guessed: bool = False) -> LogitsRow:
    """Return ``row`` with the smallest set of its likeliest tokens that has ``share`` of the total
    (Holtzman et al. 2020); ties go to the lower id.

    If ``guessed``, the total of a large vocabulary is estimated, so that the least likely tokens of
    the set may be missing, or too many.
    """
    near = row.likely(_LIKELY)
    ordered, mass = _ranked(row, near)
    total, error = _total(row, near, ordered[-1], mass[-1], guessed=guessed)
    wider = _wider(row, share, total)
    while True:
        size, most = mass.searchsorted([share * (total - error), share * (total + error)]) + 1
        if size != most:
            size = mass.searchsorted(share * row.total) + 1
        if size <= near.size or (outline := next(wider, None)) is None:
            break
        near = outline
        ordered, mass = _ranked(row, near)
    if size < near.size:
        values, lowest = row.logits[near], ordered[size - 1]
        kept = values >= lowest
        num_more = np.count_nonzero(kept) - size  # They are as likely as the last, with higher ids.
        if num_more:
            kept[(values == lowest).nonzero()[0][-num_more:]] = False
        near = near[kept]
    return row.only(near)


def _total(
    row: LogitsRow,
    near: NDArray[np.int64],
    floor: np.floating[Any],
    mass: np.float64,
    *,
    guessed: bool,
) -> tuple[float, float]:
    """Return the sum of all weights, of which the tokens at the indices ``near``, those that reach
    ``floor``, have ``mass``, and the most by which it is wrong, unless it is guessed."""
    if not row.is_large:
        return row.total, 0.0
    if guessed:
        return float(mass) + row.estimate_beyond(float(floor)), 0.0
    rest = row.total_beyond(near)
    return float(mass) + rest, ROUGH * rest + _SLACK * float(mass)


def _ranked(row: LogitsRow, near: NDArray[np.int64]) -> tuple[Values, NDArray[np.float64]]:
    """Return the logits of the tokens at the indices ``near``, best first, and how much weight each
    has together with those before."""
    logits = row.logits[near]
    logits.sort()
    ordered = logits[::-1]
    return ordered, np.exp(row.scaled(ordered)).cumsum()


def is_surely_in_nucleus(row: LogitsRow, token_id: int, share: float) -> bool:
    """Return True if ``token_id`` of a large vocabulary is in the nucleus, and nearly always if it
    is; far faster than ``nucleus``.

    The nucleus has every token for which the likelier ones have less than the share, and a bound of
    the total suffices for most.
    """
    logit = row.logits[token_id]
    if row.num_groups_from(float(logit)) > _FEW_GROUPS:
        return False
    weights = np.exp(row.scaled(row.logits[row.reaching(float(logit))]))
    likelier = float(weights.sum() - weights.min())
    return likelier < share * row.least_total() * (1 - _SLACK)


def _wider(row: LogitsRow, share: float, total: float) -> Iterator[NDArray[np.int64]]:
    """Yield the indices of two larger sets of likeliest tokens. The second holds the nucleus, and
    little more."""
    yield row.likely(4 * _LIKELY)
    # Tokens below this floor have less than half of what the nucleus may leave out.
    least = math.log((1 - share) / 2 * total / row.logits.size)
    near = row.reaching(row.peak + row.temperature * least)
    logs: Values = row.logits[near]
    row.rough_logs(logs, logs)
    buckets = (logs * (_BUCKETS / least)).astype(np.intp)
    mass = np.bincount(buckets, np.exp(logs)).cumsum()
    yield near[buckets <= mass.searchsorted(share * total * (1 + 3 * ROUGH))]
