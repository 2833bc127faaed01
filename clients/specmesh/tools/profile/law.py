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
from scipy.optimize import nnls

KNOTS: Final = (1, 2, 3, 4, 8, 16, 32, 64, 128)
"""Tokens at which the slope may change: kernels are chosen by powers of two, and for few tokens
individually."""
TELLING: Final = 3
"""Minimum number of samples between two knots."""
FOLDS: Final = 5
"""Number of folds of cross-validation: each part of the settings is held out once."""
_CONTEXT_UNIT: Final = 1000.0
"""Unit of context, in tokens, so that coefficients have similar magnitudes."""

Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True, order=True)
class MeasuredForward:
    """The size of a forward: its number of calls, their total tokens, and the tokens that each call
    attends to. As means these may be fractions."""

    calls: float
    tokens: float
    context: float


@dataclass(frozen=True, slots=True)
class Sample:
    """Consecutive forwards that together took ``ms``, estimated from several repetitions."""

    forwards: tuple[MeasuredForward, ...]
    ms: float


@dataclass(frozen=True, slots=True)
class Law:
    """The time of a forward in milliseconds. It has the time of one call without context at each of
    ``knots``, which rise; of a further call; of 1,000 tokens of context, by call and by token; and
    what a draft takes besides its forwards."""

    knots: tuple[float, ...]
    at_knots: tuple[float, ...]
    call_ms: float
    call_context_ms: float
    token_context_ms: float
    start_ms: float

    def ms(self, forward: MeasuredForward) -> float:
        """Return the time of ``forward``, which is never negative."""
        coefficients = (
            *self.at_knots,
            self.call_ms,
            self.call_context_ms,
            self.token_context_ms,
        )
        return max(0.0, float(_row(forward, self.knots) @ np.array(coefficients)))

    def total_ms(self, forwards: Sequence[MeasuredForward]) -> float:
        """Return the time of all ``forwards`` as one draft."""
        return self.start_ms + sum(map(self.ms, forwards))


@dataclass(frozen=True, slots=True)
class Fit:
    """A law fitted to all ``samples``, and the relative ``errors`` of each of them by a law fitted
    without it."""

    law: Law
    samples: tuple[Sample, ...]
    errors: tuple[float, ...]

    @property
    def median_error(self) -> float:
        """Return the median error on held-out settings; 0 if there were too few to tell."""
        return median(self.errors) if self.errors else 0.0


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
    found = coefficients(rows, [sample.ms for sample in samples])
    return Law(knots, tuple(found[: len(knots)]), *found[len(knots) :])


def coefficients(rows: Sequence[Sequence[float]], ms: Sequence[float]) -> list[float]:
    """Return the non-negative factors of the columns of ``rows`` that minimise the squares of the
    relative errors of the times ``ms``, which must be positive."""
    relative = np.array(rows) / np.array(ms)[:, None]
    found: list[float] = nnls(relative, np.ones(len(rows)))[0].tolist()
    return found


def _knots(samples: Sequence[Sample], wanted: Sequence[int]) -> tuple[float, ...]:
    """Return the fewest and the most tokens, and those ``wanted`` in between with enough samples
    since the previous knot."""
    sizes = [{each.tokens for each in sample.forwards} for sample in samples]
    every = set[float]().union(*sizes)
    knots = [min(every)]
    for knot in wanted:
        telling = [own for own in sizes if any(knots[-1] < size <= knot for size in own)]
        if len(telling) >= TELLING and knot < max(every):
            knots.append(knot)
    return tuple(map(float, dict.fromkeys((*knots, max(every)))))


def _row(forward: MeasuredForward, knots: Sequence[float]) -> Vector:
    """Return the factors of the coefficients; beyond the knots the line is extrapolated."""
    row = np.zeros(len(knots) + 3)
    if len(knots) == 1:
        row[0] = 1.0
    else:
        upper = int(np.clip(np.searchsorted(knots, forward.tokens), 1, len(knots) - 1))
        low, high = knots[upper - 1], knots[upper]
        share = max(0.0, (forward.tokens - low) / (high - low))
        row[upper - 1 : upper + 1] = 1 - share, share
    context = forward.context / _CONTEXT_UNIT
    row[-3:] = forward.calls - 1, forward.calls * context, forward.tokens * context
    return row
