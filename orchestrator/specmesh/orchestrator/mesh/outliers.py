"""Which replicas are left out because they fail, or are slow, where others aren't.

Outlier detection as Envoy and gRPC (proposal A50) do it, without a clock: events come with
their times, in seconds. Two things differ, for pools of few replicas whose calls are pure and
tried elsewhere when they fail. A few events are enough, for nothing is lost by them; and a
replica is taken back by a call that it answers, not by time alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import ceil
from statistics import median

WINDOW = 20
"""How many of the latest outcomes and paces of a replica count."""
MAX_FAILURES = 5
"""In the window; one more failure and the replica is left out."""
MAX_IN_A_ROW = 2
"""Likewise, with no answer in between."""
MIN_PACES = 10
"""With fewer a replica is not called slow."""
SLOW = 4.0
"""Times the pace of the others, by the median."""
BASE_SECONDS = 1.0
"""For how long a replica is left out at first; twice as long each time again."""
MAX_SECONDS = 60.0
FORGIVEN_SECONDS = 30.0
"""So long without being left out halves the time of the next."""
STAYING = 1 / 3
"""Share of the replicas that stay whatever they do, rounded up."""


class Cause(Enum):
    """Why a replica was left out."""

    ERRORS = "errors"
    LATENCY = "latency"


@dataclass(slots=True)
class _Record:
    failures: deque[bool] = field(default_factory=lambda: deque(maxlen=WINDOW))
    paces: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))
    num_answers: int = 0
    num_in_a_row: int = 0
    """Failures since the last answer."""
    suspect: str | None = None
    """The request whose failure here was laid at its own door, if nobody was answered since."""
    times_out: int = 0
    out_since: float | None = None
    probe_at: float = 0.0
    back_at: float = 0.0


class Outliers:
    """See the module. ``last_stays``: a share of the replicas is used however bad it is.

    ``among`` names the replicas that could take each other's calls.
    """

    def __init__(self, *, last_stays: bool = True) -> None:
        self._staying = STAYING if last_stays else 0.0
        self._records: dict[str, _Record] = {}
        self._num_out = 0

    @property
    def any_out(self) -> bool:
        """Whether any replica is left out."""
        return self._num_out > 0

    def fit(self, among: Sequence[str], now: float) -> list[str]:
        """Those that calls may go to: neither left out nor, once its time has come, tried.

        All of them if nobody else is there, unless none need stay.
        """
        fit = [name for name in among if self._may_be_called(name, now)]
        return fit or (list(among) if self._staying else [])

    def is_out(self, replica: str) -> bool:
        """Whether the replica is left out."""
        return self._of(replica).out_since is not None

    def due(self, replica: str, now: float) -> bool:
        """Whether the replica was left out long enough for one call to try it."""
        record = self._of(replica)
        return record.out_since is not None and now >= record.probe_at

    def tried(self, replica: str, now: float) -> None:
        """A call tries a replica that is ``due``. The next one must wait as long again."""
        record = self._of(replica)
        record.probe_at = now + self._seconds_out(record)

    def restarted(self, replica: str, now: float) -> None:
        """It has come up anew, so it may be another than before: a call may try it at once."""
        self._of(replica).probe_at = now

    def answered(
        self,
        replica: str,
        among: Sequence[str],
        began: float,
        now: float,
        pace: float | None = None,
    ) -> Cause | None:
        """A call that began at ``began`` was answered, in ``pace`` times what was expected if
        that is known.

        Returns why the replica is left out from now on, if it is.
        """
        record = self._of(replica)
        record.num_answers += 1
        record.num_in_a_row, record.suspect = 0, None
        record.failures.append(False)
        if pace is not None:
            record.paces.append(pace)
        if record.out_since is not None:
            if began >= record.out_since:
                self._tried(replica, record, among, pace, now)
            return None
        # A median costs as much as all the rest: not with every call.
        if record.num_answers % MIN_PACES == 0 and self._is_slow(record, replica, among):
            return self._leave_out(record, replica, among, now, Cause.LATENCY)
        return None

    def failed(
        self,
        replica: str,
        among: Sequence[str],
        began: float,
        now: float,
        cause: Cause = Cause.ERRORS,
    ) -> Cause | None:
        """A call that began at ``began`` failed through no fault of its own, or was overtaken
        by one that began later elsewhere. Returns as ``answered``."""
        record = self._of(replica)
        record.num_in_a_row += 1
        record.failures.append(True)
        if record.out_since is not None:
            if began >= record.out_since:
                self._go_on(record, now)
            return None
        if record.num_in_a_row > MAX_IN_A_ROW or sum(record.failures) > MAX_FAILURES:
            return self._leave_out(record, replica, among, now, cause)
        return None

    def suspected(self, replica: str, request: str) -> None:
        """``request`` failed here and elsewhere, and was found to be the cause of it."""
        self._of(replica).suspect = request

    def may_be_sound(self, replica: str, request: str) -> bool:
        """Whether nothing but ``request`` has failed there of late."""
        record = self._of(replica)
        return not any(record.failures) and record.suspect in {None, request}

    def sound(self, replica: str) -> bool:
        """Whether it has answered and nothing has failed there, of late."""
        record = self._of(replica)
        return bool(record.failures) and not any(record.failures) and record.suspect is None

    def proven(self, replica: str) -> bool:
        """Whether it has answered, and not failed since."""
        record = self._of(replica)
        return bool(record.num_answers) and not record.num_in_a_row and record.suspect is None

    def _of(self, replica: str) -> _Record:
        record = self._records.get(replica)
        if record is None:
            record = self._records[replica] = _Record()
        return record

    def _may_be_called(self, replica: str, now: float) -> bool:
        record = self._of(replica)
        return record.out_since is None or now >= record.probe_at

    def _is_slow(self, record: _Record, replica: str, among: Sequence[str]) -> bool:
        return bool(record.paces) and self._slower(median(record.paces), replica, among)

    def _slower(self, pace: float, replica: str, among: Sequence[str]) -> bool:
        """Whether ``pace`` is out of line with that of the others that are used."""
        others = [
            median(other.paces)
            for other in (self._of(name) for name in among if name != replica)
            if len(other.paces) >= MIN_PACES and other.out_since is None
        ]
        return bool(others) and pace > SLOW * median(others)

    def _leave_out(
        self, record: _Record, replica: str, among: Sequence[str], now: float, cause: Cause
    ) -> Cause | None:
        num_used = sum(not self.is_out(name) for name in {*among, replica})
        if num_used - 1 < ceil(self._staying * len({*among, replica})):
            return None
        num_forgiven = int((now - record.back_at) / FORGIVEN_SECONDS)
        record.times_out = max(0, record.times_out - num_forgiven)
        self._num_out += 1
        self._go_on(record, now)
        return cause

    def _go_on(self, record: _Record, now: float) -> None:
        """Left out from now on, for longer than the last time."""
        record.times_out += 1
        record.out_since = now
        record.probe_at = now + self._seconds_out(record)

    def _seconds_out(self, record: _Record) -> float:
        # The exponent is bounded so that no count overflows a float.
        return min(MAX_SECONDS, BASE_SECONDS * 2.0 ** min(record.times_out - 1, 30))

    def _tried(
        self, replica: str, record: _Record, among: Sequence[str], pace: float | None, now: float
    ) -> None:
        """A call has tried a replica that was left out, and was answered."""
        if pace is not None and self._slower(pace, replica, among):
            self._go_on(record, now)
            return
        record.out_since, record.back_at = None, now
        self._num_out -= 1
        record.failures.clear()
        record.paces.clear()
