"""The forward passes that a replica times at its start, before anybody waits for one.

An orchestrator that has just begun would otherwise have to draft to learn what a row of a forward
takes. In a crowd, all answers do so at once, and where rows are dear all are slower for it than the
target alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

MOST_ROWS: Final = 64
"""The rows of the largest forward: with 150,000 entries, its logits take 40 MB."""
_LEAST: Final = 2
"""The number of forwards that it takes to tell what a row takes."""
LONGEST_S: Final = 0.1
"""The seconds of a forward above which larger ones are left out, so that no start takes long."""


def time_forwards(
    seconds_of: Callable[[int], float], most_rows: int = MOST_ROWS
) -> list[tuple[int, float]]:
    """Return the rows and seconds of forwards of 1, 2, 4 and so on up to ``most_rows``, each timed
    by ``seconds_of``."""
    timed: list[tuple[int, float]] = []
    num_rows = 1
    while num_rows <= most_rows and (len(timed) < _LEAST or timed[-1][1] <= LONGEST_S):
        timed.append((num_rows, seconds_of(num_rows)))
        num_rows *= 2
    return timed
