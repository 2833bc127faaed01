"""The time to wait for a store before going on without it, estimated like TCP's retransmission
timeout (RFC 6298): the smoothed response time plus four times its smoothed deviation.
"""

from __future__ import annotations

SHORTEST_S = 0.1
"""A busy machine may wake a process up this late although nothing is wrong."""
LONGEST_S = 0.5
"""The longest time for which a reader of an answer has to wait."""

_SMOOTHING = 1 / 8
_DEVIATION_SMOOTHING = 1 / 4
_NUM_DEVIATIONS = 4


class StorePatience:
    """Learns the time to wait for the next response from each response.

    Invariant: it is within [``SHORTEST_S``, ``LONGEST_S``], or 0 while the store is unavailable.
    """

    def __init__(self) -> None:
        self._smoothed_s: float | None = None
        self._deviation_s = 0.0
        self._away = False

    @property
    def seconds(self) -> float:
        """The time to wait; 0 from a failed command until one is answered."""
        if self._away:
            return 0.0
        if self._smoothed_s is None:
            return LONGEST_S
        wanted_s = self._smoothed_s + _NUM_DEVIATIONS * self._deviation_s
        return min(max(wanted_s, SHORTEST_S), LONGEST_S)

    def answered(self, seconds: float) -> None:
        """Note that a command was answered after ``seconds``."""
        self._away = False
        if self._smoothed_s is None:
            self._smoothed_s, self._deviation_s = seconds, seconds / 2
            return
        off_s = seconds - self._smoothed_s
        self._deviation_s += _DEVIATION_SMOOTHING * (abs(off_s) - self._deviation_s)
        self._smoothed_s += _SMOOTHING * off_s

    def failed(self) -> None:
        """Note that a command was refused or not answered."""
        self._away = True
