"""A watchdog for the engine's thread.

A forward pass has no fixed time limit, but one that lasts many times longer than any before will
not end: a device hangs, or a thread is deadlocked. Only time in which this process was awake
counts, so a process that was suspended for a minute is not taken to hang.
"""

from __future__ import annotations

import time

LEAST_SECONDS = 60.0
TIMES_LONGEST = 50
"""A prefill may have this many times the tokens of a warm-up pass."""
LOOK_SECONDS = 1.0
"""The interval between calls of ``has_stopped``."""


class Pulse:
    """Records when each step of the thread begins, and when the thread is idle."""

    def __init__(self, longest_s: float | None = None) -> None:
        """Take a step to hang after ``longest_s``; by default after ``LEAST_SECONDS`` or
        ``TIMES_LONGEST`` times the longest step before, whichever is longer."""
        self._bound_s = longest_s
        self._since: float | None = None
        self._longest_s = 0.0
        self._seen: float | None = None
        self._patience_s = 0.0

    # On the engine's thread.

    def beat(self) -> None:
        """Record that the next step begins, and that any step before it is over."""
        now = time.monotonic()
        if self._since is not None:
            self._longest_s = max(self._longest_s, now - self._since)
        self._since = now

    def rest(self) -> None:
        """Record that the thread is idle until the next beat."""
        self.beat()
        self._since = None

    # On any one other thread.

    def has_stopped(self) -> bool:
        """Return whether one step has lasted too long; call it every ``LOOK_SECONDS``."""
        since = self._since
        if since is None or since != self._seen:
            self._seen, self._patience_s = since, self._bound()
            return False
        self._patience_s -= LOOK_SECONDS
        return self._patience_s <= 0

    def _bound(self) -> float:
        if self._bound_s is not None:
            return self._bound_s
        return max(LEAST_SECONDS, TIMES_LONGEST * self._longest_s)
