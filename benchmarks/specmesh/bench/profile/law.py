"""What a forward costs: a small model, fitted to medians of measured times.

A forward takes a base, a time for each token that is piecewise linear in how many there are, a time
for each call more, and for attention one for each token of context, by call (its KV is gathered)
and by token (it attends). No part is negative. The model is linear in its coefficients, so that
several forwards that were timed together, such as the levels of a draft, are one row; it is fitted
by least squares of relative errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

import numpy as np
from numpy.typing import NDArray

KNOTS: Final = (1, 4, 8, 16, 32, 64)
"""Where the time of a token may change: kernels work in powers of two."""
HELD_OUT: Final = 4
"""Every so manieth setting is held out to judge a fit."""
_CONTEXT_UNIT: Final = 1000.0
"""Contexts count in thousands, so that coefficients are of a size."""

Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True, order=True)
class Forward:
    """The size of a forward: how many calls share it, their tokens together, and how many tokens
    each call attends to. Means need not be whole."""

    calls: float
    tokens: float
    context: float


@dataclass(frozen=True, slots=True)
class Sample:
    """Forwards, one after the other, that together took ``ms``, the median of some repetitions."""

    forwards: tuple[Forward, ...]
    ms: float


@dataclass(frozen=True, slots=True)
class Law:
    """The time of a forward, by coefficients in milliseconds, as many as ``row`` has entries."""

    coefficients: tuple[float, ...]

    def ms(self, forward: Forward) -> float:
        """The time that ``forward`` takes."""
        return float(_row(forward) @ np.array(self.coefficients))

    def total_ms(self, forwards: Sequence[Forward]) -> float:
        """The time of all of them."""
        return sum(map(self.ms, forwards))


@dataclass(frozen=True, slots=True)
class Fit:
    """A law fitted to all ``samples``, and the relative ``errors`` that one fitted without those
    held out makes on these."""

    law: Law
    samples: tuple[Sample, ...]
    errors: tuple[float, ...]

    @property
    def median_error(self) -> float:
        """On settings held out; 0 if there were none."""
        return median(self.errors) if self.errors else 0.0


def fit(samples: Sequence[Sample]) -> Fit:
    """Fit a law to ``samples``, at least one, of different settings and with positive times."""
    ordered = tuple(sorted(samples, key=lambda each: each.forwards))
    held_out = ordered[HELD_OUT // 2 :: HELD_OUT]
    kept = [each for each in ordered if each not in held_out]
    without = _fitted(kept) if kept else None
    errors = () if without is None else tuple(error(without, each) for each in held_out)
    return Fit(_fitted(ordered), ordered, errors)


def error(law: Law, sample: Sample) -> float:
    """By what share of the measured time ``law`` is wrong."""
    return abs(law.total_ms(sample.forwards) / sample.ms - 1)


def _fitted(samples: Sequence[Sample]) -> Law:
    rows = np.array([sum(map(_row, each.forwards)) / each.ms for each in samples])
    return Law(tuple(nonnegative_least_squares(rows, np.ones(len(rows))).tolist()))


def _row(forward: Forward) -> Vector:
    """What the coefficients are multiplied by."""
    calls, tokens, context = forward.calls, forward.tokens, forward.context / _CONTEXT_UNIT
    ends = (*KNOTS[1:], np.inf)
    segments = [np.clip(tokens, start, end) - start for start, end in zip(KNOTS, ends, strict=True)]
    return np.array([1.0, *segments, calls - 1, calls * context, tokens * context])


def nonnegative_least_squares(rows: NDArray[np.float64], wanted: Vector) -> Vector:
    """The x >= 0 that brings ``rows @ x`` closest to ``wanted`` (Lawson and Hanson 1974, active
    sets)."""
    size = rows.shape[1]
    scale = np.linalg.norm(rows, axis=0)
    scale[scale == 0] = 1.0
    rows = rows / scale
    found = np.zeros(size)
    free = np.zeros(size, dtype=np.bool_)
    for _ in range(3 * size):
        gradient = rows.T @ (wanted - rows @ found)
        gradient[free] = -np.inf
        best = int(gradient.argmax())
        if gradient[best] <= 1e-9:  # noqa: PLR2004 - rounding
            break
        free[best] = True
        found = _descend(rows, wanted, found, free)
    return found / scale


def _descend(
    rows: NDArray[np.float64], wanted: Vector, found: Vector, free: NDArray[np.bool_]
) -> Vector:
    """The least squares over the ``free`` entries, of which those that would fall below 0 are bound
    again."""
    while free.any():
        goal = np.zeros(len(found))
        goal[free] = np.linalg.lstsq(rows[:, free], wanted, rcond=None)[0]
        falling = free & (goal <= 0)
        if not falling.any():
            return goal
        step = (found[falling] / (found[falling] - goal[falling])).min()
        found = found + step * (goal - found)
        bound = free & (found <= 1e-12)  # noqa: PLR2004 - rounding
        free &= ~bound
        found[bound] = 0.0
    return found
