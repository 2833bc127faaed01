"""Timeouts learnt from latencies: when a call is late and hedged, and when it is given up.

A call that computes more tokens takes longer, and a long prefill is not a hang, so a call is
compared with calls of about its size. Its **pace** is its time divided by their median, so that the
paces of all sizes together show the spread of latencies. No clock, no I/O; times are in seconds.
"""

from __future__ import annotations

from typing import TypeVar

from specmesh.orchestrator.replicas.latencies.sliding import SlidingWindow

WINDOW = 128
"""Number of the latest calls that count, for each size and for each replica."""
TAIL = 0.99
"""The quantile of paces that stands for the slowest calls."""
BASE_SECONDS = 0.01
"""Added to both times of a pace, so that the jitter of very short calls hardly counts."""
LATE = 1.5
"""A call is late after this multiple of the time of the slowest calls."""
LATE_FLOOR_SECONDS = 0.05
"""Shortest time after which a call is late: a busy machine may pause it that long."""
LATE_UNKNOWN_SECONDS = 0.5
"""Time after which a call is late while latencies are unknown."""
GIVEN_UP = 10.0
"""A call is given up after this multiple of the time of the slowest calls."""
GIVEN_UP_FLOOR_SECONDS = 2.0
"""Default of the shortest time after which a call is given up, once latencies are known."""
MISSED_STEPS = 2.0
"""Steps of others that a call which they could do without may take, even if it is late."""

Key = TypeVar("Key")


class CallPatience:
    """Timeouts of one kind of call, at most ``ceiling_s``: ``unknown_s`` until latencies are known,
    and then at least ``floor_s``."""

    def __init__(
        self, ceiling_s: float, unknown_s: float, floor_s: float = GIVEN_UP_FLOOR_SECONDS
    ) -> None:
        self._ceiling_s = ceiling_s
        self._unknown_s = unknown_s
        self._floor_s = floor_s
        self._by_size: dict[int, SlidingWindow] = {}
        """Latencies, by the bit length of the number of tokens."""
        self._paces: dict[str, SlidingWindow] = {}
        """Paces, by replica."""
        self._tail = 1.0

    def add(self, replica: str, num_tokens: int, seconds: float) -> float:
        """Record a call that was answered, and return its pace."""
        of_its_size = _window(self._by_size, num_tokens.bit_length())
        of_its_size.add(seconds)
        pace = (seconds + BASE_SECONDS) / (of_its_size.median + BASE_SECONDS)
        _window(self._paces, replica).add(pace)
        # The median over replicas, so that a single slow replica does not widen the tail.
        tails = sorted(paces.at(TAIL) for paces in self._paces.values())
        self._tail = tails[(len(tails) - 1) // 2]
        return pace

    def forget(self, replica: str) -> None:
        """Forget the paces of a replica that is gone."""
        self._paces.pop(replica, None)

    def late_after(self, num_tokens: int) -> float:
        """Return the seconds after which a call that computes ``num_tokens`` is late."""
        slow = self._slow(num_tokens)
        return LATE_UNKNOWN_SECONDS if slow is None else max(LATE_FLOOR_SECONDS, LATE * slow)

    def given_up_after(self, num_tokens: int, num_ahead: int = 0, num_late: int = 0) -> float:
        """Return the seconds after which to give up a call that computes at most ``num_tokens``,
        queued behind ``num_ahead`` others; doubled for each of ``num_late`` timed-out attempts."""
        slow = self._slow(num_tokens)
        if slow is None:
            return self._unknown_s
        bound = max(self._floor_s, GIVEN_UP * slow * (1 + num_ahead))
        return min(self._ceiling_s, bound * 2.0 ** min(num_late, 10))

    def missed_after(self, num_tokens: int, step_s: float, *, is_probe: bool = False) -> float:
        """Return the seconds after which others go on without a call that computes ``num_tokens``,
        since it is late and has cost them some of their steps of ``step_s``. One that only probes
        a replica which has failed is not worth the floor."""
        if self._slow(num_tokens) is None:
            return self._unknown_s
        # As one of twice the size: the largest prompts of a size take far more than its median.
        bound = max(self.late_after(2 * num_tokens), MISSED_STEPS * step_s)
        return min(self._ceiling_s, bound if is_probe else max(self._floor_s, bound))

    def _slow(self, num_tokens: int) -> float | None:
        """Return the time of the slowest calls of this size; None until latencies are known."""
        expected = self._expected(num_tokens)
        if expected is None:
            return None
        return self._tail * (expected + BASE_SECONDS) - BASE_SECONDS

    def _expected(self, num_tokens: int) -> float | None:
        """Return the median time of calls of this size. If there are none, scale that of smaller
        calls, since the time per token does not grow with the size; or take that of larger ones."""
        size = num_tokens.bit_length()
        known = self._by_size.get(size)
        if known is not None:
            return known.median
        if not self._by_size:
            return None
        smaller = [known for known in self._by_size if known < size]
        if not smaller:
            return self._by_size[min(self._by_size)].median
        nearest = max(smaller)
        least_tokens = 1 << max(0, nearest - 1)
        return self._by_size[nearest].median * num_tokens / least_tokens


def _window(windows: dict[Key, SlidingWindow], key: Key) -> SlidingWindow:
    window = windows.get(key)
    if window is None:
        window = windows[key] = SlidingWindow(WINDOW)
    return window
