"""The time of a forward pass by its number of rows, learnt from the passes that were seen."""

from __future__ import annotations

from collections import deque
from typing import Final

import numpy as np
from numpy.typing import NDArray

WINDOW: Final = 64
"""The number of latest forwards that count."""
ENOUGH: Final = 8
"""The law is fitted anew after so many more forwards, and at first after each, when it is asked
for: a fit takes as long as a quick drafter's forward."""


class ForwardTimes:
    """Forward times as ``fixed_s`` + rows x ``row_s`` seconds, neither below 0; 0 until known.

    A GPU reads all weights for a single row, so that further rows are nearly free until it is busy
    computing; on a small CPU they are not. The slope is the median of the slopes between any two of
    the latest forwards, weighted by the difference of their rows (Theil 1950, Sen 1968; Jaeckel
    1972 for the weights), so that no pause of a busy machine moves it.
    """

    def __init__(self) -> None:
        self._row_s = self._fixed_s = self._typical_s = 0.0
        self._knows_rows = self._varies = False
        self._latest: deque[tuple[int, float]] = deque(maxlen=WINDOW)
        self._num_new = 0

    def add(self, num_rows: int, seconds: float) -> None:
        """Record a forward."""
        self._knows_rows |= bool(self._latest) and num_rows != self._latest[-1][0]
        self._latest.append((num_rows, seconds))
        self._num_new += 1
        if self._num_new >= WINDOW // 2:  # before forwards that nobody has asked about are lost
            self._num_new = 0
            self._fit()

    @property
    def row_s(self) -> float:
        """Seconds that each additional row takes."""
        self._fit_if_due()
        return self._row_s

    @property
    def fixed_s(self) -> float:
        """Seconds of a forward besides those of its rows."""
        self._fit_if_due()
        return self._fixed_s

    @property
    def typical_s(self) -> float:
        """The median time of the latest forwards."""
        self._fit_if_due()
        return self._typical_s

    @property
    def knows_rows(self) -> bool:
        """True if there were forwards of different sizes, so that ``row_s`` is known."""
        return self._knows_rows

    @property
    def varies(self) -> bool:
        """True if so many forwards were of another size than most that a few odd ones do not decide
        about ``row_s``."""
        self._fit_if_due()
        return self._varies

    def at(self, num_rows: float) -> float:
        """Return the seconds of a forward of ``num_rows``."""
        return self.fixed_s + self.row_s * num_rows

    def _fit_if_due(self) -> None:
        if self._num_new >= (1 if len(self._latest) <= ENOUGH else ENOUGH):
            self._num_new = 0
            self._fit()

    def _fit(self) -> None:
        rows, seconds = np.array(self._latest).T
        first, second = np.triu_indices(len(rows), 1)
        more_rows = rows[second] - rows[first]
        differ = more_rows != 0
        self._typical_s = float(np.median(seconds))
        most = int(np.bincount(rows.astype(np.intp)).max())
        self._varies = len(rows) - most >= ENOUGH
        if differ.any():
            more_rows = more_rows[differ]
            slopes = (seconds[second] - seconds[first])[differ] / more_rows
            self._row_s = max(0.0, _weighted_median(slopes, np.abs(more_rows)))
        self._fixed_s = max(0.0, float(np.median(seconds - self._row_s * rows)))


def _weighted_median(values: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
    order = np.argsort(values)
    passed = weights[order].cumsum()
    return float(values[order[passed.searchsorted(passed[-1] / 2)]])
