"""Slow start, as in Envoy: a new replica gets few calls at first, since its caches are cold and its
process may be slow. No clock; times are in seconds."""

from __future__ import annotations

from collections.abc import Collection, Iterable

WINDOW_SECONDS = 10.0
"""Age at which a replica gets its full share of calls."""
LEAST = 0.1
"""The share of calls with which a replica begins."""


class SlowStart:
    """The age of each replica, by identity.

    Only replicas that are newer than others are held back. Replicas that come soon after the very
    first count as equally old: the order in which a starting orchestrator reaches them says nothing
    about their age.
    """

    def __init__(self) -> None:
        self._first: float | None = None
        self._since: dict[str, float] = {}
        self._latest = float("-inf")

    def came(self, identity: str, now: float) -> None:
        """Record that a replica can be called, unless it is known already."""
        if self._first is None:
            self._first = now
        if identity not in self._since:
            together = now < self._first + WINDOW_SECONDS
            self._since[identity] = self._latest = self._first if together else now

    def keep(self, identities: Collection[str]) -> None:
        """Forget all replicas except ``identities``."""
        self._since = {each: self._since[each] for each in self._since if each in identities}

    def any_new(self, now: float) -> bool:
        """Return whether any replica may still be new."""
        return now < self._latest + WINDOW_SECONDS

    def reluctance(self, among: Iterable[str], now: float) -> dict[str, float]:
        """Return the factor by which each replica's load is weighted: 1 for the oldest of
        ``among``."""
        shares = {each: self._share(each, now) for each in among}
        full = max(shares.values(), default=1.0)
        return {each: full / share for each, share in shares.items()}

    def _share(self, identity: str, now: float) -> float:
        since = self._since.get(identity, now)
        return min(1.0, max(LEAST, (now - since) / WINDOW_SECONDS))
