"""Slow start: a replica that is new gets few calls at first, since its caches are cold and its
process may be slow (as Envoy does it). No clock; times are in seconds."""

from __future__ import annotations

from collections.abc import Collection, Iterable

WINDOW_SECONDS = 10.0
"""After this long a replica is like any other."""
LEAST = 0.1
"""The share with which it begins."""


class SlowStart:
    """Who is new among replicas, which are told apart by their identity.

    Only who is newer than another is held back. Those that come soon after the first of all came
    with it: when an orchestrator starts, whom it reaches sooner says nothing of their age.
    """

    def __init__(self) -> None:
        self._first: float | None = None
        self._since: dict[str, float] = {}
        self._latest = float("-inf")

    def came(self, identity: str, now: float) -> None:
        """Record that a replica can be called, unless it was known."""
        if self._first is None:
            self._first = now
        if identity not in self._since:
            together = now < self._first + WINDOW_SECONDS
            self._since[identity] = self._latest = self._first if together else now

    def keep(self, identities: Collection[str]) -> None:
        """Forget all replicas but these."""
        self._since = {each: self._since[each] for each in self._since if each in identities}

    def any_new(self, now: float) -> bool:
        """Whether a replica may be new."""
        return now < self._latest + WINDOW_SECONDS

    def reluctance(self, among: Iterable[str], now: float) -> dict[str, float]:
        """By how much each replica's load counts for more than it is: 1 for the eldest of
        ``among``."""
        shares = {each: self._share(each, now) for each in among}
        full = max(shares.values(), default=1.0)
        return {each: full / share for each, share in shares.items()}

    def _share(self, identity: str, now: float) -> float:
        since = self._since.get(identity, now)
        return min(1.0, max(LEAST, (now - since) / WINDOW_SECONDS))
