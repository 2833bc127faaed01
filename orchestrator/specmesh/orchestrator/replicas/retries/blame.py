"""Decides whether the replicas or the request are to blame for the failed attempts of one call.

Calls are pure, so a call that breaks a replica is retried on another. If that one answers, the
first replica is to blame. If it breaks too, the request is suspected, since it might break every
replica in turn, unless the replicas are known to fail other requests. If a connection breaks, the
request may have killed the replica, until its process is found to be alive.
"""

from __future__ import annotations

from collections.abc import Set

from specmesh.orchestrator.replicas.pool.outliers import Outliers

MAX_BROKEN = 2
"""Replicas broken by a call, one after the other, after which it is tried on no others."""
MAX_REFUSALS = 2
"""Replicas that must refuse a request as invalid before it counts as invalid."""


class Blame:
    """Evidence from the attempts of one call; ``request`` is its session's id. No clock, no I/O.

    A single failure never incriminates the request: that takes two broken replicas, two refusals,
    or processes lost in three attempts. Processes lost in one attempt, by a call and its hedge,
    may have died together of something else, so they count once.
    """

    def __init__(self, outliers: Outliers, request: str) -> None:
        self._outliers = outliers
        self._request = request
        self._broken: set[str] = set()
        self._all_may_be_healthy = True
        self._one_is_healthy = False
        self._lost: dict[tuple[str, int], int] = {}
        """Processes that the call may have killed, as (replica, process number), with the number of
        the attempt that lost each."""
        self._successors: set[str] = set()
        self._num_refusals = 0

    @property
    def second_opinion(self) -> bool:
        """True if the next attempt should go to a replica that is known to be good."""
        return bool(self._broken or self._num_refusals)

    @property
    def confined_to(self) -> Set[str] | None:
        """The only replicas that the call may be sent to; None means any.

        A broken connection may mean that the call killed the replica. After two such attempts, the
        call stays with the replicas that it lost, so that it kills no others.
        """
        if self._num_fatal < MAX_BROKEN or len(self._lost_replicas) < MAX_BROKEN:
            return None
        return self._lost_replicas | self._successors

    @property
    def may_kill(self) -> bool:
        """True if the call may have killed a replica."""
        return bool(self._lost)

    @property
    def broken(self) -> Set[str]:
        """Replicas that broke on the call, or may have been killed by it."""
        return self._broken | self._lost_replicas

    def refused(self) -> bool:
        """Record that a replica refused the request as invalid; return whether to believe it."""
        self._num_refusals += 1
        return self._num_refusals >= MAX_REFUSALS

    def broke(self, replica: str) -> bool:
        """Record that a replica broke; return whether the request is now suspected. One replica is
        never enough, however often it breaks, because it may be at fault itself."""
        self._broken.add(replica)
        self._all_may_be_healthy &= self._outliers.may_be_healthy(replica, self._request)
        self._one_is_healthy |= self._outliers.healthy(replica)
        believed = self._all_may_be_healthy or self._one_is_healthy
        return believed and len(self._broken) >= MAX_BROKEN

    def lost(self, replica: str, process_number: int, attempt: int) -> None:
        """Record that the connection to this process of the replica broke. ``attempt`` is a number
        that a call and its hedge share."""
        self._lost[replica, process_number] = attempt

    def may_have_killed(self, replica: str, process_number: int) -> bool:
        """Return whether that process was lost and has not been found alive since."""
        return (replica, process_number) in self._lost

    def survived(self, replica: str, process_number: int) -> None:
        """Record that the process is alive, so that only its connection broke."""
        self._lost.pop((replica, process_number), None)

    def succeeded(self, successor: str) -> None:
        """Record that the call may be sent to ``successor``, in place of lost replicas that do not
        return: what it does to that one counts as if a lost replica had returned."""
        self._successors.add(successor)

    @property
    def deadly(self) -> bool:
        """True if the request kills replicas: more than two attempts lost processes, and one of
        these had taken the place of a lost one. An outage that breaks all connections together does
        not count."""
        replaced = len(self._lost_replicas) < len(self._lost)
        has_killed_again = replaced or not self._successors.isdisjoint(self._lost_replicas)
        return self._num_fatal > MAX_BROKEN and has_killed_again

    def found_guilty(self) -> None:
        """Note at each broken replica that the request was the cause."""
        for replica in self.broken:
            self._outliers.suspected(replica, self._request)

    @property
    def _lost_replicas(self) -> Set[str]:
        return {replica for replica, _ in self._lost}

    @property
    def _num_fatal(self) -> int:
        """Attempts that may have killed replicas."""
        return len(set(self._lost.values()))
