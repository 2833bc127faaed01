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

All calls of a forward report it, hundreds of them in a crowd. So everything is averaged over the
latest forwards, not over the latest calls, which may all be of one forward.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from statistics import median

from specmesh.decoding.predict.forward_times import ForwardTimes

SHARED_CALLS, OWN_CALLS = 1.6, 1.3
"""The mean number of calls at a replica from which on those that can share forwards count as doing
so, and below which they no longer do."""
EXPLORED = 4.0
"""The rows of a forward over those of the largest one so far up to which its time is foreseen."""
NOISE = 0.05
"""The share of a forward by which forwards vary anyway."""
MEMORY = 64
"""The number of latest forwards over which the waiting calls are averaged."""
_ROUNDING = 1e-9
"""The most by which a sum of shares of a forward may be off."""


class TokenPrice:
    """Learns the price from verifications that read no long prefix."""

    def __init__(self) -> None:
        self._forwards = ForwardTimes()
        self._with_drafts = ForwardTimes()
        self._at_start = ForwardTimes()
        """The forwards that replicas timed before their first call."""
        self._most_timed = 0
        self._most_rows = 0
        self._num_due = 1.0
        self._most_calls = 1
        self.can_share = False
        """True if a replica is known to compute several calls at once: it says so, or has done so.
        Two answers that take turns never show it."""
        self._is_shared = False
        self._calls_s = self._busy_s = 0.0
        """The seconds that calls were at their replica until they were verified, and the seconds
        that the replica worked for them, both of about the latest ``MEMORY`` forwards."""

    def start_with(self, forwards: Iterable[tuple[int, float]]) -> None:
        """Count on the rows and seconds of ``forwards``, which replicas timed at their start, until
        calls have shown what a row takes: on the median of each size, however many replicas there
        are. They replace those of an earlier call."""
        by_rows: defaultdict[int, list[float]] = defaultdict(list)
        for num_rows, seconds in forwards:
            by_rows[num_rows].append(seconds)
        self._at_start, self._most_timed = ForwardTimes(), max(by_rows, default=0)
        for num_rows, each in by_rows.items():
            self._at_start.add(num_rows, median(each))

    def add(
        self,
        num_calls: int,
        num_rows: int,
        forward_s: float,
        queue_s: float,
        heads_s: float = 0.0,
    ) -> None:
        """Record a verification that waited ``queue_s`` for a forward of ``num_calls`` with
        ``num_rows`` in all, after which the target's heads drafted for ``heads_s``."""
        if forward_s <= 0 or num_calls < 1:
            return
        kept, used_s = 1 - 1 / (MEMORY * num_calls), forward_s + heads_s
        self._calls_s = kept * self._calls_s + queue_s + used_s
        self._busy_s = kept * self._busy_s + used_s / num_calls
        self._most_calls = max(self._most_calls, num_calls)
        self.can_share = self.can_share or num_calls > 1
        least = OWN_CALLS if self._is_shared else SHARED_CALLS
        self._is_shared = self.can_share and self._num_at_once > least
        # All calls of a forward report it, and it counts once: if none is missing with the first,
        # since answers decide about drafts as soon as their own has come.
        self._num_due += 1 / num_calls
        if self._num_due > 1 + _ROUNDING:
            self._num_due -= 1
            self._add_forward(num_calls, num_rows, forward_s)

    def _add_forward(self, num_calls: int, num_rows: int, seconds: float) -> None:
        self._forwards.add(num_rows, seconds)
        self._most_rows = max(self._most_rows, num_rows)
        if num_rows > num_calls:
            self._with_drafts.add(num_rows, seconds)

    @property
    def _line(self) -> ForwardTimes:
        """The law of forwards with draft tokens, or of all until there are enough of them. Until
        those are of different sizes, the law of forwards at the start, unless it ends below what
        calls need."""
        if self._with_drafts.varies:
            return self._with_drafts
        num_needed = max(2 * self._num_bare, self._most_rows)  # at least a draft token for each
        if self._forwards.varies or num_needed > self._most_timed:
            return self._forwards
        return self._at_start

    @property
    def token_s(self) -> float:
        """The seconds that one more token takes from all answers together, rounded to hide small
        changes; 0 until forwards of different sizes have been seen."""
        return float(f"{self._line.row_s * self._num_at_once:.1e}")

    @property
    def first_s(self) -> float:
        """The seconds that a verification takes besides as soon as it has any draft token, rounded.
        Below 0 where a forward is flat up to more rows than it has calls: these draft tokens cost
        less than the later ones, but not less than nothing."""
        if not self._with_drafts.varies:
            return 0.0
        num_calls, row_s = self._num_bare, self._line.row_s
        one_each_s = self._with_drafts.near(2 * num_calls, row_s)
        seconds = one_each_s - row_s * num_calls - self._bare_s
        surplus_s = max(0.0, abs(seconds) - NOISE * self._bare_s) * self._num_forwards
        return max(float(f"{math.copysign(surplus_s, seconds):.1e}"), -self.token_s)

    @property
    def most_tokens(self) -> float:
        """The most draft tokens of a verification whose time can be told: a GPU is flat up to some
        number of rows, so a forward may have ``EXPLORED`` times as many as the largest so far."""
        if not self._most_rows:
            return math.inf
        most_rows = max(EXPLORED * self._most_rows, self._most_timed)
        return max(1.0, float(f"{most_rows / self._num_bare - 1:.1e}"))

    @property
    def _bare_s(self) -> float:
        """The seconds of a forward if no call had draft tokens."""
        return self._forwards.near(self._num_bare, self._line.row_s)

    @property
    def is_known(self) -> bool:
        """True if forwards of different sizes have been seen."""
        return self._line.knows_rows

    @property
    def period_s(self) -> float:
        """The seconds between two forwards of a replica that several answers share, rounded; 0 if
        replicas are not shared."""
        return float(f"{self._forwards.typical_s:.1e}") if self._is_shared else 0.0

    @property
    def num_waiting(self) -> float:
        """The answers that wait for a replica one after the other, rounded; 1 if they can share
        forwards."""
        return 1.0 if self.can_share else float(f"{self._num_at_once:.1e}")

    @property
    def num_sharing(self) -> float:
        """The answers that share a replica, rounded; 1 if they wait for it one after the other."""
        return float(f"{self._num_at_once:.1e}") if self.can_share else 1.0

    @property
    def decoding_s(self) -> float | None:
        """The seconds of a verification at its replica if no call had any draft tokens; None until
        forwards have been seen. Calls that share forwards then all return in time for the next one,
        the others wait for each other."""
        bare_s = self._bare_s
        return bare_s * self._num_forwards if bare_s else None

    @property
    def _num_at_once(self) -> float:
        """The mean number of calls that wait for a replica or share its forward while it works:
        Little's law (1961)."""
        return max(1.0, self._calls_s / self._busy_s) if self._busy_s else 1.0

    @property
    def _num_bare(self) -> float:
        """The number of calls in a forward if none had draft tokens, rounded: all at a replica that
        has ever computed several at once, up to twice as many, since groups may take turns."""
        most = 2 * self._most_calls if self.can_share else 1
        return float(f"{min(self._num_at_once, most):.1e}")

    @property
    def _num_forwards(self) -> float:
        """The number of forwards that a call would then wait for, its own included."""
        return self._num_at_once / self._num_bare
