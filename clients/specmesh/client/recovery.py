"""What to do when a call broke: call again after a pause, or give up. Decides, does nothing."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import grpc

from specmesh.client.errors import (
    Internal,
    NotFound,
    Overloaded,
    SpecmeshError,
    Unavailable,
)

_FIRST_BACKOFF_S = 0.1
_LONGEST_BACKOFF_S = 2.0

_BROKEN = frozenset({grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.CANCELLED})
"""What proxies, and gRPC itself, make of a connection that breaks; an orchestrator's own words
come with a reason."""
_NOT_STORED = frozenset({"NO_STORE", "STORE_UNAVAILABLE", "SESSION_NOT_FOUND"})


@dataclass(frozen=True, slots=True)
class Limits:
    """When to give up."""

    timeout_s: float
    """For the whole answer."""
    start_s: float
    """For the first event of a call."""
    idle_s: float
    """Longest silence of an open stream whose orchestrator promises no heartbeats."""
    max_starts: int
    """How many targets may be unreachable before the answer has begun."""
    max_resumes: int
    """How many broken calls in a row may bring no token once it has begun."""


class Recovery:
    """Counts the breaks of one answer; ``luck`` spreads the clients of a lost orchestrator."""

    def __init__(self, limits: Limits, luck: Random) -> None:
        self._limits = limits
        self._luck = luck
        self.num_broken = 0
        """Calls in a row that broke and brought no token."""

    def progressed(self) -> None:
        """A token came."""
        self.num_broken = 0

    def pause_s(self, error: SpecmeshError, *, has_begun: bool) -> float | None:
        """How long to wait before the next call, in seconds; None if ``error`` is final.

        Before the answer has begun nothing is lost, so the caller hears at once that nobody
        is there, or that there is too much to do.
        """
        self.num_broken += 1
        if not has_begun:
            again = is_lost(error) and self.num_broken < self._limits.max_starts
            return 0.0 if again else None
        if self.num_broken > self._limits.max_resumes or not _may_go_on(error):
            return None
        if isinstance(error, Overloaded):
            return max(error.retry_after_s or 0.0, self._backoff_s(self.num_broken + 1))
        return self._backoff_s(self.num_broken)

    def _backoff_s(self, num_broken: int) -> float:
        """None at first, for the next target is likely well; then doubling."""
        if num_broken == 1:
            return 0.0
        longest_s = min(_FIRST_BACKOFF_S * 2.0 ** (num_broken - 2), _LONGEST_BACKOFF_S)
        return longest_s * self._luck.uniform(0.5, 1)


def is_lost(error: SpecmeshError) -> bool:
    """Whether the target broke, rather than say what it cannot do."""
    return isinstance(error, Unavailable) or _is_untold(error)


def is_not_stored(error: SpecmeshError) -> bool:
    """Whether only the session is missing, so that the answer can go on without it."""
    return error.reason in _NOT_STORED


def _may_go_on(error: SpecmeshError) -> bool:
    if isinstance(error, NotFound):
        return is_not_stored(error)
    return isinstance(error, Unavailable | Overloaded) or _is_untold(error)


def _is_untold(error: SpecmeshError) -> bool:
    return isinstance(error, Internal) and error.code in _BROKEN and not error.reason
