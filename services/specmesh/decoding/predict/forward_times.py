"""The time of a forward pass by its number of rows, learnt from the passes that were seen, or timed
at a replica's start."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from statistics import median, median_low
from typing import Final

import numpy as np
from numpy.typing import NDArray

WINDOW: Final = 64
"""The number of latest forwards that count."""
KEPT: Final = 2
"""The number of forwards of about the same number of rows, of which there are two between a number
and its double, that count for longer."""
KEPT_FOR: Final = 64 * WINDOW
"""For so many further forwards: a GPU is flat up to some number of rows, and what it takes beyond
must not be forgotten as soon as forwards are small again, nor stand for ever."""
NEAR: Final = 0.25
"""The difference between the logarithms of the rows of forwards that are about as large."""
SPREAD: Final = 0.2
"""The difference between rows, as a share of them, from which on two forwards tell what a row
takes. Those of a crowd differ by a few rows only, and by more time by chance."""
ENOUGH: Final = 8
"""When the law is asked for, it is fitted anew if there were so many further forwards. At first one
is enough, and once ``WINDOW`` are known it takes twice as many: a fit takes as long as a quick
drafter's forward."""

MOST_ROWS: Final = 64
"""The rows of the largest forward that is timed at a replica's start: with 150,000 entries, its
logits take 40 MB."""
LONGEST_S: Final = 0.1
"""The seconds of a forward above which no larger one is timed, so that no start takes long."""
_LEAST: Final = 2
"""The number of forwards that it takes to tell what a row takes."""


class ForwardTimes:
    """Forward times as ``fixed_s`` + rows x ``row_s`` seconds, neither below 0; 0 until known.

    A GPU reads all weights for a single row, so that further rows are nearly free until it is busy
    computing; on a small CPU they are not. The slope is the median of the slopes between any two of
    the latest forwards, weighted by the difference of their rows (Theil 1950, Sen 1968; Jaeckel
    1972 for the weights), so that no pause of a busy machine moves it.
    """

    def __init__(self) -> None:
        self._row_s = self._fixed_s = self._typical_s = self._typical_rows = 0.0
        self._typical_due = 1
        """The number of forwards from which on ``typical_s`` is computed anew."""
        self._knows_rows = self._varies = False
        self._latest: deque[tuple[float, float]] = deque(maxlen=WINDOW)
        self._kept: defaultdict[int, deque[tuple[int, float, float]]] = defaultdict(
            lambda: deque(maxlen=KEPT)
        )
        """The latest forwards by twice the logarithm of their rows, each with its number."""
        self._near: dict[tuple[float, float], float] = {}
        """What ``near`` has returned since the last fit."""
        self._num_added = 0
        self._num_new = 0

    def add(self, num_rows: float, seconds: float) -> None:
        """Record a forward, or several that had ``num_rows`` and took ``seconds`` on average."""
        self._knows_rows |= bool(self._latest) and num_rows != self._latest[-1][0]
        self._latest.append((num_rows, seconds))
        size = int(num_rows * num_rows).bit_length()
        self._kept[size].append((self._num_added, num_rows, seconds))
        self._num_added += 1
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
        """The median time of the latest forwards, which needs no fit."""
        if self._num_added >= self._typical_due:
            self._typical_due = self._num_added + self._patience
            self._typical_s = median(seconds for _, seconds in self._latest)
        return self._typical_s

    @property
    def shared_s(self) -> float:
        """The seconds by which a forward of as many rows as usual is quicker than two of half of
        them each: ``fixed_s`` on a line, all of a forward where a GPU is flat."""
        self._fit_if_due()
        rows, row_s = self._typical_rows, self._row_s
        return max(0.0, 2 * self.near(rows / 2, row_s) - self.near(rows, row_s)) if rows else 0.0

    @property
    def knows_rows(self) -> bool:
        """True if there were forwards of different sizes, so that ``row_s`` is known."""
        return self._knows_rows

    @property
    def varies(self) -> bool:
        """True if so many forwards were of clearly another size than most (``SPREAD``) that a few
        odd ones do not decide about ``row_s``."""
        self._fit_if_due()
        return self._varies

    def at(self, num_rows: float) -> float:
        """Return the seconds of a forward of ``num_rows``."""
        return self.fixed_s + self.row_s * num_rows

    def near(self, num_rows: float, row_s: float) -> float:
        """Return the seconds of a forward of ``num_rows`` by those that had about as many, each
        further row of which takes ``row_s``; 0 until known. No line tells how quick the smallest
        forwards of a CPU are, nor how far a GPU is flat. Of the two in the middle the
        quicker one counts, since pauses only ever make forwards longer."""
        if not self._latest:
            return 0.0
        self._fit_if_due()
        asked = (num_rows, row_s)
        if asked not in self._near:
            rows, seconds = np.array([*self._earlier(), *self._latest]).T
            far = np.sort(distances := np.abs(np.log(rows / num_rows)))
            nearest = distances <= max(far[0], min(far[:ENOUGH][-1], NEAR))
            moved = seconds[nearest] + row_s * (num_rows - rows[nearest])
            self._near[asked] = max(0.0, median_low(moved.tolist()))
        return self._near[asked]

    @property
    def _patience(self) -> int:
        """The number of further forwards that change what is known."""
        if len(self._latest) <= ENOUGH:
            return 1
        return ENOUGH if len(self._latest) < WINDOW else 2 * ENOUGH

    def _fit_if_due(self) -> None:
        if self._num_new >= self._patience:
            self._num_new = 0
            self._fit()

    def _fit(self) -> None:
        self._near.clear()
        rows, seconds = np.array(self._latest).T
        self._typical_rows = float(np.median(rows))
        most = int(np.bincount(rows.astype(np.intp)).argmax())
        apart = np.abs(rows - most) >= SPREAD * most
        self._varies = int(apart.sum()) >= ENOUGH
        forwards = np.array([*self._earlier(), *self._latest])
        # A GPU is flat at first: much smaller forwards do not tell what further rows take, unless
        # all others are alike.
        large = forwards[forwards[:, 0] >= self._typical_rows / 2]
        is_wide = np.ptp(large[:, 0]) >= SPREAD * self._typical_rows
        self._fit_slope(large if is_wide else forwards)
        self._fixed_s = max(0.0, float(np.median(seconds - self._row_s * rows)))

    def _earlier(self) -> Iterator[tuple[float, float]]:
        """Yield the forwards that are kept although they are not among the latest."""
        since = self._num_added - len(self._latest)
        for each in self._kept.values():
            for number, num_rows, seconds in each:
                if since - KEPT_FOR <= number < since:
                    yield num_rows, seconds

    def _fit_slope(self, forwards: NDArray[np.float64]) -> None:
        rows, seconds = forwards.T
        if (rows == rows[0]).all():
            return
        first, second = np.triu_indices(len(rows), 1)
        more_rows = rows[second] - rows[first]
        differ = more_rows != 0
        more_rows = more_rows[differ]
        slopes = (seconds[second] - seconds[first])[differ] / more_rows
        self._row_s = max(0.0, _weighted_median(slopes, np.abs(more_rows)))


def time_forwards(
    seconds_of: Callable[[int], float], most_rows: int = MOST_ROWS
) -> list[tuple[int, float]]:
    """Return the rows and seconds of forwards of 1, 2, 4 and so on up to ``most_rows``, each timed
    by ``seconds_of``: what a replica times at its start.

    An orchestrator that has just begun would otherwise have to draft to learn what a row takes. In
    a crowd, all answers do so at once, and where rows are dear all are slower for it than the
    target alone.
    """
    timed: list[tuple[int, float]] = []
    num_rows = 1
    while num_rows <= most_rows and (len(timed) < _LEAST or timed[-1][1] <= LONGEST_S):
        timed.append((num_rows, seconds_of(num_rows)))
        num_rows *= 2
    return timed


def _weighted_median(values: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
    order = np.argsort(values)
    passed = weights[order].cumsum()
    return float(values[order[passed.searchsorted(passed[-1] / 2)]])
