"""How long to wait for a store before going on without it, estimated like TCP's retransmission
timeout.

RFC 6298: the smoothed time of a response, and four times its smoothed deviation on top.
"""

from __future__ import annotations

SHORTEST_S = 0.1
"""A busy machine may wake a process as late as this with nothing wrong."""
LONGEST_S = 0.5
"""The longest that a reader of an answer is made to wait."""

_SMOOTHING = 1 / 8
_DEVIATION_SMOOTHING = 1 / 4
_NUM_DEVIATIONS = 4


class StorePatience:
    """Learns from each response how long to wait for the next.

    Invariant: that is within [``SHORTEST_S``, ``LONGEST_S``], or 0 while the store is away.
    """

    def __init__(self) -> None:
        self._smoothed_s: float | None = None
        self._deviation_s = 0.0
        self._away = False

    @property
    def seconds(self) -> float:
        """How long to wait: 0 after a command that failed, until one is answered."""
        if self._away:
            return 0.0
        if self._smoothed_s is None:
            return LONGEST_S
        wanted_s = self._smoothed_s + _NUM_DEVIATIONS * self._deviation_s
        return min(max(wanted_s, SHORTEST_S), LONGEST_S)

    def answered(self, seconds: float) -> None:
        """A command was answered after ``seconds``."""
        self._away = False
        if self._smoothed_s is None:
            self._smoothed_s, self._deviation_s = seconds, seconds / 2
            return
        off_s = seconds - self._smoothed_s
        self._deviation_s += _DEVIATION_SMOOTHING * (abs(off_s) - self._deviation_s)
        self._smoothed_s += _SMOOTHING * off_s

    def failed(self) -> None:
        """A command was not answered, or refused."""
        self._away = True
