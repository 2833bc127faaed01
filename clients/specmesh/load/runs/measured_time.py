"""The measured time of a run, and the part of it in which requests were due."""

from __future__ import annotations

from dataclasses import dataclass

from specmesh.load.generators.fleet import FleetSeen
from specmesh.load.workload.arrivals import Users
from specmesh.load.workload.plan import Workload

_LEAST_S = 1e-9


@dataclass(frozen=True, slots=True)
class MeasuredTime:
    """Begin and end, in seconds from the start. Up to ``due_until_s`` the load was offered; answers
    count until ``until_s``, which is later where the last answers of an open loop ended alone."""

    from_s: float
    due_until_s: float
    until_s: float

    @property
    def due_s(self) -> float:
        """Return for how long requests were due."""
        return self.due_until_s - self.from_s

    @property
    def took_s(self) -> float:
        """Return the length of the measured time."""
        return self.until_s - self.from_s


def measured_time(workload: Workload, seen: FleetSeen) -> MeasuredTime:
    """Return the measured time. The end is the configured one, or, if a number of requests, a trace
    or the user ended the run before it, the end of the last request."""
    extent = workload.extent
    from_s = extent.warm_up_s
    until_s = float("inf") if extent.duration_s is None else from_s + extent.duration_s
    if not (seen.interrupted or _ended_by_amount(workload, seen)):
        return MeasuredTime(from_s, until_s, until_s)
    last_s = max((each.ended_s for each in seen.observations), default=from_s)
    until_s = min(until_s, max(last_s, from_s + _LEAST_S))
    if isinstance(workload.arrivals, Users):
        return MeasuredTime(from_s, until_s, until_s)
    last_due_s = max((each.due_s for each in seen.observations), default=from_s)
    # All requests of a burst are due at once; such a load has no rate but that of its answers.
    due_until_s = min(until_s, last_due_s) if last_due_s > from_s else until_s
    return MeasuredTime(from_s, due_until_s, until_s)


def _ended_by_amount(workload: Workload, seen: FleetSeen) -> bool:
    """Return whether every conversation of the workload has begun, so that no more were due."""
    if workload.extent.duration_s is None:
        return True
    number = workload.num_conversations
    return number is not None and len({each.conversation for each in seen.observations}) >= number
