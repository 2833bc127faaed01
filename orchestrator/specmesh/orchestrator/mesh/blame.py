"""Who is to blame for the failed tries of one call: the replicas, or the request.

Calls are pure, so one that a replica breaks on is asked of another. If that one answers, the
first is to blame. If it breaks as well the request is suspected, which would then break every
replica in turn; unless the replicas are known to be bad. If a connection breaks the request may
have killed the replica, until that is found to live.
"""

from __future__ import annotations

from collections.abc import Set

from specmesh.orchestrator.mesh.outliers import Outliers

MAX_BROKEN = 2
"""A call that broke so many replicas is tried nowhere else."""
MAX_REFUSALS = 2
"""What so many replicas say of a request is so."""


class Blame:
    """What the tries of one call of ``request`` (a session's id) tell. No clock, no I/O."""

    def __init__(self, outliers: Outliers, request: str) -> None:
        self._outliers = outliers
        self._request = request
        self._broken: set[str] = set()
        self._all_may_be_sound = True
        self._one_is_sound = False
        self._lost: set[tuple[str, int]] = set()
        """Replicas that may have died, and how often they had come up before."""
        self._num_refusals = 0

    @property
    def second_opinion(self) -> bool:
        """Whether the next try should be at a replica that is known to be good."""
        return bool(self._broken or self._num_refusals)

    @property
    def confined_to(self) -> Set[str] | None:
        """Where alone the call may be tried; None: anywhere.

        A call whose connection broke may have killed the replica, or somebody else has.
        After two it stays with those two: they are all that it can have killed.
        """
        if len(self._lost) < MAX_BROKEN:
            return None
        lost = {replica for replica, _ in self._lost}
        return lost if len(lost) >= MAX_BROKEN else None

    @property
    def broken(self) -> Set[str]:
        """The replicas that broke in the call, or may have died of it."""
        return self._broken | {replica for replica, _ in self._lost}

    def refused(self) -> bool:
        """A replica found fault with the request. Returns whether that is so."""
        self._num_refusals += 1
        return self._num_refusals >= MAX_REFUSALS

    def broke(self, replica: str) -> bool:
        """A replica broke. Returns whether the request is suspected: never for what a single
        replica says, which may be ill, however often it says so."""
        self._broken.add(replica)
        self._all_may_be_sound &= self._outliers.may_be_sound(replica, self._request)
        self._one_is_sound |= self._outliers.sound(replica)
        believed = self._all_may_be_sound or self._one_is_sound
        return believed and len(self._broken) >= MAX_BROKEN

    def lost(self, replica: str, num_starts: int) -> None:
        """The connection to a replica broke, the ``num_starts``-th process there."""
        self._lost.add((replica, num_starts))

    def may_have_killed(self, replica: str, num_starts: int) -> bool:
        """Whether that process was lost and nothing has been heard of it."""
        return (replica, num_starts) in self._lost

    def survived(self, replica: str, num_starts: int) -> None:
        """That process lives: only the connection broke."""
        self._lost.discard((replica, num_starts))

    @property
    def deadly(self) -> bool:
        """Whether the request kills replicas: more were lost than by chance, one of them again
        after it had come back. Whatever breaks all connections at once is no request."""
        more = len(self._lost) > MAX_BROKEN
        return more and len({replica for replica, _ in self._lost}) < len(self._lost)

    def found_guilty(self) -> None:
        """Keep in mind which replicas did nothing wrong, as it seems."""
        for replica in self.broken:
            self._outliers.suspected(replica, self._request)
