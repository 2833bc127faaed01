"""The cost of a forward: a small model, fitted to measured times.

The time of a forward is the sum of a term that is piecewise linear in its tokens, and may fall as
well as rise (when another kernel takes over); a time for each further call; and for attention one
for each token of context, by call (its KV is gathered) and by token (it attends). Forwards that
immediately follow each other, such as the levels of a draft, have one common start time in
addition. No term is negative. The model is linear in its coefficients, so forwards that were timed
together form one row; it is fitted by least squares of relative errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

import numpy as np
from numpy.typing import NDArray

from specmesh.simulation.law import CONTEXT_UNIT, ForwardShape, Law, place

KNOTS: Final = (1, 2, 3, 4, 8, 16, 32, 64, 128)
"""Tokens at which the slope may change: kernels are chosen by powers of two, and for few tokens
individually."""
TELLING: Final = 3
"""Minimum number of samples between two knots, and above the last but one."""
FOLDS: Final = 5
"""Number of folds of cross-validation: each part of the settings is held out once."""
Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Sample:
    """Consecutive forwards that together took ``ms``, estimated from several repetitions."""

    forwards: tuple[ForwardShape, ...]
    ms: float


@dataclass(frozen=True, slots=True)
class Fit:
    """A law fitted to all ``samples``, and the relative ``errors`` of each of them by a law fitted
    without it."""

    law: Law
    samples: tuple[Sample, ...]
    errors: tuple[float, ...]

    @property
    def median_error(self) -> float | None:
        """Return the median error on held-out settings; None if there were too few to tell."""
        return median(self.errors) if self.errors else None


def fit(samples: Sequence[Sample], knots: Sequence[int] = KNOTS) -> Fit:
    """Fit a law to ``samples``, at least one, of different settings and with positive times. It
    uses those of ``knots`` that have enough samples."""
    ordered = tuple(sorted(samples, key=lambda each: each.forwards))
    errors: list[float] = []
    for fold in range(FOLDS if len(ordered) > 1 else 0):
        kept = [each for number, each in enumerate(ordered) if number % FOLDS != fold]
        law = _fitted(kept, knots)
        errors += (error(law, each) for each in ordered[fold::FOLDS])
    return Fit(_fitted(ordered, knots), ordered, tuple(errors))


def error(law: Law, sample: Sample) -> float:
    """Return the error of ``law`` as a share of the measured time."""
    return abs(law.total_ms(sample.forwards) / sample.ms - 1)


def _fitted(samples: Sequence[Sample], wanted: Sequence[int]) -> Law:
    knots = _knots(samples, wanted)
    # With equal numbers of forwards the start time can't be told from theirs.
    start = float(len({len(each.forwards) for each in samples}) > 1)
    rows = [
        [*np.sum([_row(each, knots) for each in sample.forwards], axis=0), start]
        for sample in samples
    ]
    *at_knots, call_ms, call_context_ms, token_context_ms, start_ms = coefficients(
        rows, [sample.ms for sample in samples]
    )
    return Law(knots, tuple(at_knots), call_ms, call_context_ms, token_context_ms, start_ms)


def coefficients(rows: Sequence[Sequence[float]], ms: Sequence[float]) -> list[float]:
    """Return the non-negative factors of the columns of ``rows`` that minimise the squares of the
    relative errors of the times ``ms``, which must be positive."""
    from scipy.optimize import nnls

    relative = np.array(rows) / np.array(ms)[:, None]
    found: list[float] = nnls(relative, np.ones(len(rows)))[0].tolist()
    return found


def _knots(samples: Sequence[Sample], wanted: Sequence[int]) -> tuple[float, ...]:
    """Return the fewest and the most tokens, and those ``wanted`` in between with enough samples
    since the previous knot and above. The most tokens are at least twice the last of these: the
    line goes on with the slope after it, which noise would decide if it were short."""
    sizes = [{each.tokens for each in sample.forwards} for sample in samples]
    every = set[float]().union(*sizes)
    knots, most = [min(every)], max(every)
    for knot in wanted:
        below = sum(any(knots[-1] < size <= knot for size in own) for own in sizes)
        above = sum(any(size > knot for size in own) for own in sizes)
        if min(below, above) >= TELLING and 2 * knot <= most:
            knots.append(knot)
    return tuple(map(float, dict.fromkeys((*knots, most))))


def _row(size: ForwardShape, knots: Sequence[float]) -> Vector:
    """Return the factors of the coefficients, in the order of ``Law``."""
    row = np.zeros(len(knots) + 3)
    upper, share = place(knots, size.tokens)
    if upper:
        row[upper - 1] = 1 - share
    row[upper] = share
    context = size.context / CONTEXT_UNIT
    row[-3:] = size.calls - 1, size.calls * context, size.tokens * context
    return row
