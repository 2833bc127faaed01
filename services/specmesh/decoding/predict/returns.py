"""The wait of a forward pass for the calls that the last one answered.

A caller comes back with its next tokens a millisecond or two after it was answered. If other calls
wait already, the next forward would begin without it, and it would wait for all of that one: two
groups of callers would take turns for ever, each with half the batch that all of them would have
together, and each would wait for the other's forwards. So the next forward waits for them, but not
for long, and only where that pays.

Let n calls be ready and m about to come, and let G(w) be the share of callers that come back within
w seconds. If the forward waits for w, the n calls lose w. Of the m calls, m G(w) save the time F by
which one forward is quicker than two, less w, since they share this one instead of waiting for it
and taking another.
So the wait gains m G(w) (F - w) - n w, and the best w is taken: none where forwards grow with their
rows, as on a small CPU, or where callers stay away.
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
"""The fewest answered calls from which the time of return is known, back or not."""
SLACK: Final = 1.3
"""Callers are expected back within this multiple of the times that they took before: a small delay
shall not end a wait in vain."""


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
        if not self._missing or len(self._after_s) < ENOUGH:
            return -math.inf
        answered = self._missing[-1]
        waited_s, longest_s = now - answered, LONGEST_SHARE * self._forwards.typical_s
        # Those that are missing still have not come back within the time that has passed.
        expected = (SLACK * seconds for seconds in self._after_s)
        to_come = sorted(seconds for seconds in expected if seconds > waited_s)
        if not to_come or to_come[0] > longest_s:
            return -math.inf
        best_s, best_gain, fixed_s = -math.inf, 0.0, self._forwards.shared_s
        for num_back, after_s in enumerate(to_come, start=1):
            left_s = after_s - waited_s
            if after_s > longest_s:
                break
            num_saving = len(self._missing) * num_back / len(to_come)
            gain = num_saving * fixed_s - num_ready * left_s
            if gain > best_gain:
                best_s, best_gain = after_s, gain
        return answered + best_s
