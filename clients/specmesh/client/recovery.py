"""Retry policy for broken calls: call again, after which pause, or give up. No clock, no I/O."""

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
"""Statuses by which proxies and gRPC itself report a broken connection; errors of an orchestrator
have a reason as well."""
_NOT_STORED = frozenset({"NO_STORE", "STORE_UNAVAILABLE", "SESSION_NOT_FOUND"})


@dataclass(frozen=True, slots=True)
class Limits:
    """When to give up an answer."""

    timeout_s: float
    """For the whole answer."""
    start_s: float
    """For the first event of a call."""
    idle_s: float
    """Longest silence of an open stream whose orchestrator sends no heartbeats."""
    max_starts: int
    """How many calls may break before the answer has begun."""
    max_resumes: int
    """How many calls in a row may break without a token once it has begun."""


class Recovery:
    """Counts the broken calls of one answer; ``luck`` gives the jitter of its pauses."""

    def __init__(self, limits: Limits, luck: Random) -> None:
        self._limits = limits
        self._luck = luck
        self.num_broken = 0
        """Calls in a row that broke without a token."""

    def progressed(self) -> None:
        """Record that a token came."""
        self.num_broken = 0

    def pause_s(self, error: SpecmeshError, *, has_begun: bool) -> float | None:
        """How long to wait before the next call, in seconds; None if ``error`` is final.

        Before the answer has begun nothing is lost, so an unreachable or overloaded mesh is
        reported at once.
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
        """0 at first, since the next target is likely healthy; then doubling, with jitter."""
        if num_broken == 1:
            return 0.0
        longest_s = min(_FIRST_BACKOFF_S * 2.0 ** (num_broken - 2), _LONGEST_BACKOFF_S)
        return longest_s * self._luck.uniform(0.5, 1)


def is_lost(error: SpecmeshError) -> bool:
    """Whether the target broke, as opposed to refusing the call."""
    return isinstance(error, Unavailable) or _is_broken_connection(error)


def is_not_stored(error: SpecmeshError) -> bool:
    """Whether only the stored session is missing: the answer can continue without it."""
    return error.reason in _NOT_STORED


def _may_go_on(error: SpecmeshError) -> bool:
    if isinstance(error, NotFound):
        return is_not_stored(error)
    return isinstance(error, Unavailable | Overloaded) or _is_broken_connection(error)


def _is_broken_connection(error: SpecmeshError) -> bool:
    return isinstance(error, Internal) and error.code in _BROKEN and not error.reason
