"""Whether the engine's thread still makes progress.

A forward pass has no natural limit, but one that lasts many times longer than any before will not
end: a device hangs, or a lock. Only time in which this process was awake counts, so that one that
was stopped for a minute is not taken to hang.
"""

from __future__ import annotations

import time

LEAST_SECONDS = 60.0
TIMES_LONGEST = 50
"""A prefill may have that many times the tokens of the forward passes that warm a model up."""
LOOK_SECONDS = 1.0
"""How often ``has_stopped`` is called."""


class Pulse:
    """Notes when each step of the thread begins, and when there is nothing to do."""

    def __init__(self, longest_s: float | None = None) -> None:
        """A step that lasts longer than ``longest_s`` will not end; by default one that lasts
        ``LEAST_SECONDS`` and ``TIMES_LONGEST`` times as long as any before."""
        self._bound_s = longest_s
        self._since: float | None = None
        self._longest_s = 0.0
        self._seen: float | None = None
        self._patience_s = 0.0

    # On the engine's thread.

    def beat(self) -> None:
        """The next step begins; the one before, if any, is over."""
        now = time.monotonic()
        if self._since is not None:
            self._longest_s = max(self._longest_s, now - self._since)
        self._since = now

    def rest(self) -> None:
        """There is nothing to do until the next beat."""
        self.beat()
        self._since = None

    # On another one.

    def has_stopped(self) -> bool:
        """Whether one step has lasted too long; to be called every ``LOOK_SECONDS``."""
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
