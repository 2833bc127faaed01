"""The wait of a forward pass for the calls that the last one answered.

A caller comes back with its next tokens a millisecond or two after it was answered. If other calls
wait already, the next forward would begin without it, and it would wait for all of that one: two
groups of callers would take turns for ever, each with half the batch that all of them would have
together, and each would wait for the other's forwards. So the next forward waits for them, but not
for long, and only where that pays.

Let n calls be ready and m about to come. If the forward waits for w seconds, the n calls lose w.
The m calls save the fixed time F of a forward, less w, since they share this one instead of waiting
for it and taking another. So waiting pays while w < F m / (n + m). F is short where forwards grow
with their rows, as on a small CPU.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Final

from specmesh.decoding.predict.forward_times import ForwardTimes

LONGEST_SHARE: Final = 0.5
"""The longest wait, as a share of a forward: the calls that are ready lose no more than that. It is
long enough for a draft of the next tokens, without which two groups would form."""
WINDOW: Final = 64
"""The number of latest answers from which the time of return is learnt."""
ENOUGH: Final = 8
"""The fewest returns within the longest wait that justify one."""
MOST: Final = 0.5
"""The share of callers that must come back within the longest wait."""
TAIL: Final = 0.9
SLACK: Final = 1.5
"""A wait ends after this multiple of the time in which the share ``TAIL`` of them come back."""


class Returns:
    """Learns when answered callers come back. No clock: times are passed in, in seconds.

    The time of return is seen whether or not a forward waited for it. A new caller counts as one
    that came back, which ends a wait earlier, never later.
    """

    def __init__(self) -> None:
        self._forwards = ForwardTimes()
        self._after_s: deque[float] = deque(maxlen=WINDOW)
        """The times of return; infinite for callers that were not back within a forward."""
        self._missing: deque[float] = deque()
        """The times at which those were answered who are not back, in order. The first that comes
        is taken for the first of them."""

    def computed(self, num_rows: int, seconds: float) -> None:
        """Record the time of a forward."""
        self._forwards.add(num_rows, seconds)

    def answered(self, num_calls: int, at: float) -> None:
        """Record that a forward that ended at ``at`` has answered ``num_calls``."""
        while self._missing and at - self._missing[0] > self._forwards.typical_s:
            self._missing.popleft()
            self._after_s.append(math.inf)
        self._missing.extend([at] * num_calls)

    def arrived(self, at: float) -> None:
        """Record a call that arrived at ``at``."""
        if self._missing:
            self._after_s.append(at - self._missing.popleft())

    def awaited_until(self, num_ready: int, now: float) -> float:
        """Return the time until which the next forward, for which ``num_ready`` calls wait already,
        waits for another one to arrive."""
        num_missing = len(self._missing)
        if not num_missing:
            return -math.inf
        until = self._missing[-1] + self._patience_s()
        share = num_missing / (num_ready + num_missing)
        return until if until - now <= share * self._forwards.fixed_s else -math.inf

    def _patience_s(self) -> float:
        if len(self._after_s) < ENOUGH:
            return 0.0
        forwards = self._forwards
        longest_s = min(LONGEST_SHARE * forwards.typical_s, forwards.fixed_s)
        in_time = sorted(seconds for seconds in self._after_s if seconds <= longest_s)
        if len(in_time) < max(ENOUGH, MOST * len(self._after_s)):
            return 0.0
        return min(longest_s, SLACK * in_time[int(TAIL * (len(in_time) - 1))])
