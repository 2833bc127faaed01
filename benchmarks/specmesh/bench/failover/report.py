"""The report of a failover, as an object and as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Self

from rich.table import Table

from specmesh.tools.kit.tables import table_of


@dataclass(frozen=True, slots=True)
class Spread:
    """The spread of times in seconds; zeros if there are none."""

    median: float
    most: float

    @classmethod
    def of(cls, times_s: Sequence[float]) -> Self:
        """Return the spread of ``times_s``."""
        return cls(round(median(times_s), 3), round(max(times_s), 3)) if times_s else cls(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class FailoverOutcome:
    """The outcome of a failover.

    ``wrong`` counts answers with a token that is not the target's own, ``kept`` those of which the
    store finally has everything that readers were told is stored; ``lost`` says of each of the
    others what is missing. ``resumed`` counts those that continued after their stream broke.
    ``failover_s`` is the time from the loss until another server took writes. ``not_stored`` counts
    streams whose reader was told that tokens were not stored yet, ``not_stored_s`` is for how long.
    ``longest_pause_s`` is each stream's longest wait for tokens; with a killed orchestrator that is
    the switch to the other one.
    """

    loss: str
    streams: int
    tokens: int
    wrong: int
    failed: Sequence[str]
    kept: int
    lost: Sequence[str]
    resumed: int
    failover_s: float
    not_stored: int
    not_stored_s: Spread
    longest_pause_s: Spread

    @property
    def is_lossless(self) -> bool:
        """Return whether every token is right, none is missing, and everything reported as stored
        is."""
        return not self.wrong and not self.failed and self.kept == self.streams


def table(outcomes: Sequence[FailoverOutcome]) -> Table:
    """Return a table with a line for each way to lose the primary; times are medians and maxima."""
    return table_of(
        "A failover of Redis, by the primary",
        outcomes,
        (
            ("primary", lambda each: each.loss),
            ("streams", lambda each: str(each.streams)),
            ("wrong", lambda each: str(each.wrong)),
            ("failed", lambda each: str(len(each.failed))),
            ("kept", lambda each: str(each.kept)),
            ("resumed", lambda each: str(each.resumed)),
            ("failover s", lambda each: f"{each.failover_s:.2f}"),
            ("not stored", lambda each: str(each.not_stored)),
            ("for s", lambda each: _cell(each.not_stored_s)),
            ("pause s", lambda each: _cell(each.longest_pause_s)),
        ),
    )


def _cell(spread: Spread) -> str:
    return f"{spread.median:.2f} / {spread.most:.2f}"
