"""How long to wait for a store before going on without it: as TCP decides when to resend.

RFC 6298: a smoothed time of an answer, and four times its smoothed deviation on top.
"""

from __future__ import annotations

SHORTEST_S = 0.1
"""A busy machine wakes a process as late as that, now and then, with nothing wrong."""
LONGEST_S = 0.5
"""What a reader of an answer may be made to wait, at most."""

_SMOOTHING = 1 / 8
_DEVIATION_SMOOTHING = 1 / 4
_NUM_DEVIATIONS = 4


class StorePatience:
    """Learns from each answer how long the next may take."""

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
