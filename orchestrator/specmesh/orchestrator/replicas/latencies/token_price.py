"""The price of a token in a verification: the time that it takes from all answers that wait.

A forward pass takes a fixed time and some time for each of its rows. A draft token adds a row, and
not only its own answer waits for it but all that share the forward, and all that queue for the next
one. So speculation gives way as the mesh fills up, as in SmartSpec (Liu et al. 2024), which chooses
the length of drafts by the goodput of the whole batch.

A forward without any draft tokens may be quicker than a line through the others tells, most of all
on a small CPU, where the first row takes a matrix times a vector: 10.5, 16.6 and 18 ms for 1, 3
and 5 rows. So the price is the slope among forwards with draft tokens, and the time of those
without is learnt beside it.

The price follows from the times and sizes of forwards, never from how long an answer's own calls
queue: else load would make verifications seem slow and drafts worth their time, which is more load.
"""

from __future__ import annotations

from specmesh.decoding.predict.forward_times import ForwardTimes
from specmesh.orchestrator.replicas.latencies.sliding import RunningMedian

SHARED_CALLS, OWN_CALLS = 1.6, 1.3
"""The mean number of calls in a forward from which on replicas count as shared, and below which
they no longer do."""
CALLS_DECAY = 1 / 32
"""The weight of a call in that mean, once there were so many."""


class TokenPrice:
    """Learns the price from verifications that read no long prefix."""

    def __init__(self) -> None:
        self._forwards = ForwardTimes()
        self._with_drafts = ForwardTimes()
        self._bare_share = RunningMedian()
        self._num_due = 0.0
        self._sharers = RunningMedian()
        self._num_calls = RunningMedian()
        self._mean_calls = 1.0
        self._calls_weight = 1.0
        self._is_shared = False
        self._num_rows = RunningMedian()
        self._queue_s = RunningMedian()

    def add(self, num_calls: int, num_rows: int, forward_s: float, queue_s: float) -> None:
        """Record a verification that waited ``queue_s`` for a forward of ``num_calls`` with
        ``num_rows`` in all."""
        if forward_s <= 0 or num_calls < 1:
            return
        self._num_due += 1 / num_calls  # all calls of a forward report it, and it counts once
        if self._num_due >= 1:
            self._num_due -= 1
            self._add_forward(num_calls, num_rows, forward_s)
        self._sharers.add(num_calls * (1 + queue_s / forward_s))
        self._num_calls.add(num_calls)
        self._mean_calls += self._calls_weight * (num_calls - self._mean_calls)
        self._calls_weight = max(CALLS_DECAY, self._calls_weight / (1 + self._calls_weight))
        self._is_shared = self._mean_calls > (OWN_CALLS if self._is_shared else SHARED_CALLS)
        self._num_rows.add(num_rows)
        self._queue_s.add(queue_s)

    def _add_forward(self, num_calls: int, num_rows: int, seconds: float) -> None:
        self._forwards.add(num_rows, seconds)
        if num_rows > num_calls:
            self._with_drafts.add(num_rows, seconds)
        elif self._with_drafts.varies:
            self._bare_share.add(seconds / self._with_drafts.at(num_rows))

    @property
    def _line(self) -> ForwardTimes:
        """The law of forwards with draft tokens, or of all until there are enough of them."""
        return self._with_drafts if self._with_drafts.varies else self._forwards

    @property
    def token_s(self) -> float:
        """The seconds that one more token takes from all answers together, rounded to hide small
        changes; 0 until forwards of different sizes have been seen."""
        return float(f"{self._line.row_s * (self._sharers.value or 1.0):.1e}")

    @property
    def first_s(self) -> float:
        """The seconds that a verification takes besides as soon as it has any draft token,
        rounded."""
        num_calls = self._num_calls.value or 1.0
        seconds = max(0.0, 1 - self._quickness) * self._line.at(num_calls)
        return float(f"{seconds * self.num_waiting:.1e}")

    @property
    def _quickness(self) -> float:
        """The time of a forward without draft tokens over that which the law of the others has for
        its rows."""
        return (self._bare_share.value or 1.0) if self._with_drafts.varies else 1.0

    @property
    def is_known(self) -> bool:
        """True if forwards of different sizes have been seen."""
        return self._forwards.knows_rows

    @property
    def period_s(self) -> float:
        """The seconds between two forwards of a replica that several answers share, rounded; 0 if
        replicas are not shared."""
        return float(f"{self._forwards.typical_s:.1e}") if self._is_shared else 0.0

    @property
    def num_waiting(self) -> float:
        """The answers that wait for a replica one after the other, rounded; 1 if they share
        forwards."""
        return 1.0 if self.period_s else float(f"{self._sharers.value or 1.0:.1e}")

    def without_drafts(self, target_s: float) -> float:
        """Return the seconds of a verification that usually takes ``target_s`` if no call had any
        draft tokens. Calls that share forwards then all return in time for the next one."""
        num_calls, num_rows = self._num_calls.value or 1.0, self._num_rows.value or 1.0
        bare_s = self._line.at(num_calls) * self._quickness
        as_usual_s = self._line.at(num_rows) if num_rows > num_calls else bare_s
        if not as_usual_s:
            return target_s
        share = bare_s / as_usual_s
        queue_s = (self._queue_s.value or 0.0) if self.period_s else 0.0
        alone_s = max(target_s - queue_s, target_s / 2) * min(1.0, share)
        return float(f"{alone_s:.1e}")
