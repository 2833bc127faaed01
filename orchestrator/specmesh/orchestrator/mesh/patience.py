"""How long to wait for a call, from how long calls have taken: when one is late, so that
another replica is asked as well, and when it is given up.

A call that computes more tokens takes longer, and a long prefill is no hang: calls are compared
with those of about their size. The measure is a call's **pace**, its time by the median of such
calls, so that all calls tell how far they spread. No clock, no I/O; times are in seconds.
"""

from __future__ import annotations

from typing import TypeVar

from specmesh.orchestrator.mesh.sliding import SlidingWindow

WINDOW = 128
"""How many of the latest calls count, of each size and of each replica."""
TAIL = 0.99
"""The share of calls that is faster than the slowest that count."""
BASE_SECONDS = 0.01
"""Added to both times of a pace: what a call of no tokens may take one way or the other."""
LATE = 1.5
"""A call is late after so many times what the slowest take."""
LATE_FLOOR_SECONDS = 0.05
"""What a busy machine takes off for other work is no lateness."""
LATE_UNKNOWN_SECONDS = 0.5
"""As long as no call has told."""
GIVEN_UP = 10.0
"""A call is given up after so many times what the slowest take."""
GIVEN_UP_FLOOR_SECONDS = 2.0

Key = TypeVar("Key")


class CallPatience:
    """See the module. ``ceiling_s`` bounds every call, ``unknown_s`` those before the first
    has told how long they take."""

    def __init__(
        self, ceiling_s: float, unknown_s: float, floor_s: float = GIVEN_UP_FLOOR_SECONDS
    ) -> None:
        self._ceiling_s = ceiling_s
        self._unknown_s = unknown_s
        self._floor_s = floor_s
        self._by_size: dict[int, SlidingWindow] = {}
        """Seconds, by the number of bits of the number of tokens."""
        self._paces: dict[str, SlidingWindow] = {}
        """By replica."""
        self._tail = 1.0

    def add(self, replica: str, num_tokens: int, seconds: float) -> float:
        """Take in a call that was answered; returns its pace."""
        of_its_size = _window(self._by_size, num_tokens.bit_length())
        of_its_size.add(seconds)
        pace = (seconds + BASE_SECONDS) / (of_its_size.median + BASE_SECONDS)
        _window(self._paces, replica).add(pace)
        # A replica that is slow must not make the others' calls seem to spread.
        tails = sorted(paces.at(TAIL) for paces in self._paces.values())
        self._tail = tails[(len(tails) - 1) // 2]
        return pace

    def late_after(self, num_tokens: int) -> float:
        """When a call that computes so many tokens is late."""
        slow = self._slow(num_tokens)
        return LATE_UNKNOWN_SECONDS if slow is None else max(LATE_FLOOR_SECONDS, LATE * slow)

    def given_up_after(self, num_tokens: int, num_ahead: int = 0, num_late: int = 0) -> float:
        """When a call is given up that computes so many tokens at most, after ``num_ahead``
        others; twice as late for each time that it was given up before."""
        slow = self._slow(num_tokens)
        if slow is None:
            return self._unknown_s
        bound = max(self._floor_s, GIVEN_UP * slow * (1 + num_ahead))
        return min(self._ceiling_s, bound * 2.0 ** min(num_late, 10))

    def _slow(self, num_tokens: int) -> float | None:
        """What the slowest calls of this size take."""
        expected = self._expected(num_tokens)
        if expected is None:
            return None
        return self._tail * (expected + BASE_SECONDS) - BASE_SECONDS

    def _expected(self, num_tokens: int) -> float | None:
        """The median of calls of this size. If there are none, that of smaller ones in
        proportion, for a token takes no longer among more; else that of larger ones."""
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
