"""Outlier ejection: replicas that fail or are slow while others are not get no calls for a while.

It works as in Envoy and gRPC (proposal A50), but has no clock: events come with their times, in
seconds. It differs in two ways, since pools are small and calls are pure and retried elsewhere: a
few failures are enough, because an ejection loses no answer; and a replica returns by answering a
call, not by time alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from math import ceil
from statistics import median

WINDOW = 20
"""Number of a replica's latest outcomes that count."""
MAX_FAILURES = 5
"""Failures in the window that are tolerated; one more and the replica is ejected."""
MAX_IN_A_ROW = 2
"""Consecutive failures that are tolerated; one more ejects the replica."""
SILENT_SECONDS = 0.5
"""A replica that can be done without hangs if it answers nothing during a call that times out, for
so long at least: that one call ejects it."""
MIN_PACES = 10
"""Paces of a replica, and of the others in the same time, without which it is not judged slow."""
MAX_PACES = 1024
"""Number of the latest paces, of all replicas together, that may count."""
SLOW = 4.0
"""A replica is slow if its median pace is this many times that of the others."""
BASE_SECONDS = 1.0
"""Duration of a replica's first ejection; each further one lasts twice as long."""
MAX_SECONDS = 60.0
"""Longest ejection."""
FORGIVEN_SECONDS = 30.0
"""Each period of this length without an ejection halves the duration of the next."""
STAYING = 1 / 3
"""Share of the replicas that is never ejected, rounded up."""


class EjectionReason(Enum):
    """The reason why a replica was ejected."""

    ERRORS = "errors"
    LATENCY = "latency"


@dataclass(slots=True)
class _Record:
    failures: deque[bool] = field(default_factory=lambda: deque(maxlen=WINDOW))
    num_answers: int = 0
    answered_at: float = 0.0
    """The time at which the latest message came."""
    num_in_a_row: int = 0
    """Failures since the last answer."""
    suspect: str | None = None
    """The request blamed for its own failure here; None after the next answer."""
    num_ejections: int = 0
    ejected_at: float | None = None
    probe_at: float = 0.0
    returned_at: float = 0.0


class Outliers:
    """Decides which replicas are ejected. No clock, no I/O.

    ``among`` lists the replicas that can take each other's calls. With ``last_stays``, no ejection
    leaves less than the share ``STAYING`` of them in use, however badly they perform.
    """

    def __init__(self, *, last_stays: bool = True) -> None:
        self._staying = STAYING if last_stays else 0.0
        self._records: dict[str, _Record] = {}
        self._paces: deque[tuple[str, float]] = deque(maxlen=MAX_PACES)
        """The latest paces with their replicas, in the order of their answers."""
        self._num_ejected = 0

    @property
    def any_ejected(self) -> bool:
        """True if any replica is ejected."""
        return self._num_ejected > 0

    def usable(self, among: Sequence[str], now: float) -> list[str]:
        """Return the replicas that may be called: those not ejected, and those due for a probe.

        If there are none, return all of them with ``last_stays``, otherwise an empty list.
        """
        fit = [name for name in among if self._may_be_called(name, now)]
        return fit or (list(among) if self._staying else [])

    def is_ejected(self, replica: str) -> bool:
        """Return whether the replica is ejected."""
        record = self._records.get(replica)
        return record is not None and record.ejected_at is not None

    def due(self, replica: str, now: float) -> bool:
        """Return whether the replica was ejected long enough ago to be probed by a call."""
        record = self._record(replica)
        return record.ejected_at is not None and now >= record.probe_at

    def tried(self, replica: str, now: float) -> None:
        """Record that a call probes a replica that is ``due``; the next probe waits as long."""
        record = self._record(replica)
        record.probe_at = now + self._ejection_s(record)

    def restarted(self, replica: str, now: float) -> None:
        """Record that the replica's process was restarted: a call may probe it immediately."""
        self._record(replica).probe_at = now

    def forget(self, replica: str) -> None:
        """Forget a replica that is gone, since another may get its name."""
        self._num_ejected -= self.is_ejected(replica)
        self._records.pop(replica, None)
        self._forget_paces(replica)

    def answered(
        self,
        replica: str,
        among: Sequence[str],
        began: float,
        now: float,
        pace: float | None = None,
    ) -> EjectionReason | None:
        """Record that a call begun at ``began`` was answered; ``pace`` is its time divided by the
        expected time, if that is known.

        Returns the reason if this ejects the replica.
        """
        record = self._record(replica)
        record.num_answers, record.answered_at = record.num_answers + 1, now
        record.num_in_a_row, record.suspect = 0, None
        record.failures.append(False)
        if pace is not None:
            self._paces.append((replica, pace))
        if record.ejected_at is not None:
            if began >= record.ejected_at:
                self._probed(replica, record, among, pace, now)
            return None
        # To compare paces takes as long as everything else, so not every call does.
        if record.num_answers % MIN_PACES == 0 and self._is_slow(replica, among):
            return self._eject(record, replica, among, now, EjectionReason.LATENCY)
        return None

    def heard(self, replica: str, now: float) -> None:
        """Record a further message of an answered call: the replica does not hang."""
        self._record(replica).answered_at = now

    def failed(
        self,
        replica: str,
        among: Sequence[str],
        began: float,
        now: float,
        cause: EjectionReason = EjectionReason.ERRORS,
    ) -> EjectionReason | None:
        """Record that a call begun at ``began`` failed through no fault of its own, or that a
        hedge overtook it in good time. Returns the reason if this ejects the replica."""
        record = self._record(replica)
        record.num_in_a_row += 1
        record.failures.append(True)
        if record.ejected_at is not None:
            if began >= record.ejected_at:
                self._extend(record, now)
            return None
        often = record.num_in_a_row > MAX_IN_A_ROW or sum(record.failures) > MAX_FAILURES
        if often or (cause is EjectionReason.LATENCY and self._hangs(record, began, now)):
            return self._eject(record, replica, among, now, cause)
        return None

    def suspected(self, replica: str, request: str) -> None:
        """Record that ``request`` failed here and elsewhere and was itself the cause."""
        self._record(replica).suspect = request

    def may_be_healthy(self, replica: str, request: str) -> bool:
        """Return whether nothing but ``request`` has failed at the replica lately."""
        record = self._record(replica)
        return not any(record.failures) and record.suspect in {None, request}

    def healthy(self, replica: str) -> bool:
        """Return whether the replica has answered and failed no call lately."""
        record = self._record(replica)
        return bool(record.failures) and not any(record.failures) and record.suspect is None

    def proven(self, replica: str) -> bool:
        """Return whether the replica has answered and not failed since."""
        record = self._record(replica)
        return bool(record.num_answers) and not record.num_in_a_row and record.suspect is None

    def _hangs(self, record: _Record, began: float, now: float) -> bool:
        """Return whether a replica that could answer before, so that it has not just begun to load
        or compile, has answered nothing since a call that began at ``began``: in a queue others
        are answered meanwhile."""
        is_silent = record.answered_at < began <= now - SILENT_SECONDS
        return not self._staying and record.num_answers > 0 and is_silent

    def _record(self, replica: str) -> _Record:
        record = self._records.get(replica)
        if record is None:
            record = self._records[replica] = _Record()
        return record

    def _may_be_called(self, replica: str, now: float) -> bool:
        record = self._record(replica)
        return record.ejected_at is None or now >= record.probe_at

    def _is_slow(self, replica: str, among: Sequence[str]) -> bool:
        """Return whether the replica's paces are far above those of the others in the same time:
        when all become slow at once, the paces of before would tell nothing but that."""
        others = self._others(replica, among)
        if not others:
            return False
        own_paces: list[float] = []
        other_paces: list[float] = []
        for name, pace in reversed(self._paces):
            if name == replica:
                own_paces.append(pace)
            elif name in others:
                other_paces.append(pace)
            if len(own_paces) >= MIN_PACES <= len(other_paces):
                return median(own_paces) > SLOW * median(other_paces)
        return False

    def _others(self, replica: str, among: Sequence[str]) -> set[str]:
        """Return the other replicas that are in use."""
        return {name for name in among if name != replica and not self.is_ejected(name)}

    def _is_slow_probe(self, replica: str, pace: float, among: Sequence[str]) -> bool:
        """Return whether ``pace`` is far above the latest ones of the other replicas in use."""
        others = self._others(replica, among)
        latest = list(islice((p for name, p in reversed(self._paces) if name in others), MIN_PACES))
        return len(latest) == MIN_PACES and pace > SLOW * median(latest)

    def _forget_paces(self, replica: str) -> None:
        kept = (each for each in self._paces if each[0] != replica)
        self._paces = deque(kept, maxlen=MAX_PACES)

    def _eject(
        self, record: _Record, replica: str, among: Sequence[str], now: float, cause: EjectionReason
    ) -> EjectionReason | None:
        num_used = sum(not self.is_ejected(name) for name in {*among, replica})
        if num_used - 1 < ceil(self._staying * len({*among, replica})):
            return None
        num_forgiven = int((now - record.returned_at) / FORGIVEN_SECONDS)
        record.num_ejections = max(0, record.num_ejections - num_forgiven)
        self._num_ejected += 1
        self._extend(record, now)
        return cause

    def _extend(self, record: _Record, now: float) -> None:
        """Eject the replica from now on, for longer than last time."""
        record.num_ejections += 1
        record.ejected_at = now
        record.probe_at = now + self._ejection_s(record)

    def _ejection_s(self, record: _Record) -> float:
        # The exponent is bounded so that a large count does not overflow the float.
        return min(MAX_SECONDS, BASE_SECONDS * 2.0 ** min(record.num_ejections - 1, 30))

    def _probed(
        self, replica: str, record: _Record, among: Sequence[str], pace: float | None, now: float
    ) -> None:
        """Record that an ejected replica answered its probe; it returns unless it is still slow."""
        if pace is not None and self._is_slow_probe(replica, pace, among):
            self._extend(record, now)
            return
        record.ejected_at, record.returned_at = None, now
        self._num_ejected -= 1
        record.failures.clear()
        self._forget_paces(replica)
