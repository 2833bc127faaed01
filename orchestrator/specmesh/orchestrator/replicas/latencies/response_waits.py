"""The time by which responses were on their way longer than the quickest: they waited in line, at
the replica, in buffers, or for the orchestrator to read them.

The clocks of two machines differ by any amount, but run at nearly the same speed. So the least
difference between the arrival of a response and its making, by these two clocks, is that of one
that did not wait (the base delay of LEDBAT, RFC 6817, section 3.4.2). No clock; times are in
seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

WINDOW_SECONDS = 300.0
"""A least difference counts for one to two times as long. Clocks drift apart by some milliseconds
meanwhile, and a way that has become longer is no wait for ever."""


@dataclass(slots=True)
class _Least:
    """The least differences in the current window, and in the one before it."""

    began: float
    former: float = inf
    latest: float = inf


class ResponseWaits:
    """The waits of the responses of each replica."""

    def __init__(self) -> None:
        self._least: dict[str, _Least] = {}

    def add(self, replica: str, made_at: float, now: float) -> float:
        """Return how long a response waited that arrives ``now`` and was made at ``made_at``, by
        the clock of ``replica``; 0 if that is unknown (0)."""
        if not made_at:
            return 0.0
        least = self._least.get(replica)
        if least is None:
            least = self._least[replica] = _Least(now)
        elif now >= least.began + WINDOW_SECONDS:
            least.began, least.former, least.latest = now, least.latest, inf
        difference = now - made_at
        least.latest = min(least.latest, difference)
        return difference - min(least.latest, least.former)

    def forget(self, replica: str) -> None:
        """Forget a process that is gone: its successor has another clock."""
        self._least.pop(replica, None)
