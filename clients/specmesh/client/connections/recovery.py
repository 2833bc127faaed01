"""Retry policy for broken calls: call again, after which pause, or give up. No clock, no I/O."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import grpc

from specmesh.client.errors import DeadlineExceeded, ResourceExhausted, SpecmeshError
from specmesh.v1 import errors_pb2

_FIRST_BACKOFF_S = 0.1
_LONGEST_BACKOFF_S = 2.0

_BROKEN = frozenset({grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.CANCELLED})
"""Statuses by which proxies and gRPC itself report a broken connection; errors of an orchestrator
have a reason as well."""
_NOT_STORED = frozenset({"NO_STORE", "STORE_UNAVAILABLE", "SESSION_NOT_FOUND"})

_RETRY_BY_REASON = {
    value.name.removeprefix("ERROR_REASON_"): value.GetOptions().Extensions[errors_pb2.error].retry
    for value in errors_pb2.ErrorReason.DESCRIPTOR.values
    if value.number
}


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """When to give up an answer."""

    timeout_s: float
    """For the whole answer."""
    start_s: float
    """For the first event of a call."""
    idle_s: float
    """Longest silence of an open stream whose orchestrator sends no heartbeats."""
    num_targets: int
    """How many targets there are: each may be passed over once without a pause."""
    max_retries: int
    """How many calls may be made again before the answer has begun, targets that were passed over
    not counted."""
    max_resumes: int
    """How many calls in a row may break without a token once it has begun."""


class Recovery:
    """Counts the broken calls of one answer; ``rng`` gives the jitter of its pauses."""

    def __init__(self, limits: RetryPolicy, rng: Random) -> None:
        self._limits = limits
        self._rng = rng
        self.num_broken = 0
        """Calls in a row that broke without a token."""

    def progressed(self) -> None:
        """Record that a token came."""
        self.num_broken = 0

    def pause_s(self, error: SpecmeshError, *, has_begun: bool) -> float | None:
        """How long to wait before the next call, in seconds; None if ``error`` is final."""
        self.num_broken += 1
        if self.num_broken > self._max_broken(has_begun) or not may_call_again(error):
            return None
        if _retry(error) == errors_pb2.RETRY_LATER:
            return max(error.retry_after_s or 0.0, self._backoff_s(self.num_broken))
        # None at first, since the next target is likely healthy.
        num_at_once = 1 if has_begun else self._limits.num_targets - 1
        num_paused = self.num_broken - num_at_once
        pause_s = self._backoff_s(num_paused) if num_paused > 0 else 0.0
        if self._limits.num_targets == 1 and error.retry_after_s is not None:
            return max(pause_s, error.retry_after_s)
        return pause_s

    def _max_broken(self, has_begun: bool) -> int:
        if has_begun:
            return self._limits.max_resumes
        return self._limits.max_retries + self._limits.num_targets - 1

    def _backoff_s(self, number: int) -> float:
        """Of the pause of that number, from 1: doubling, with jitter."""
        longest_s = min(_FIRST_BACKOFF_S * 2.0 ** min(number - 1, 30), _LONGEST_BACKOFF_S)
        return longest_s * self._rng.uniform(0.5, 1)


def out_of_time(deadline: SpecmeshError, broken: SpecmeshError | None) -> SpecmeshError:
    """``deadline``, which passed during a call, with the reason for which the call before it,
    ``broken``, had to be made again: without it nobody would know what the time was spent on."""
    if broken is None:
        return deadline
    told = DeadlineExceeded(
        f"{deadline}; the call before it failed: {broken}",
        code=deadline.code,
        reason=broken.reason or deadline.reason,
        metadata=broken.metadata,
    )
    told.__cause__ = broken
    return told


def may_call_again(error: SpecmeshError) -> bool:
    """Whether the same call may succeed, now elsewhere or later."""
    return _retry(error) != errors_pb2.RETRY_NEVER


def is_lost(error: SpecmeshError) -> bool:
    """Whether the target broke, as opposed to refusing the call."""
    return _retry(error) == errors_pb2.RETRY_ELSEWHERE


def is_not_stored(error: SpecmeshError) -> bool:
    """Whether only the stored session is missing: the answer can continue without it."""
    return error.reason in _NOT_STORED


def _retry(error: SpecmeshError) -> errors_pb2.Retry.ValueType:
    """As errors.proto says of the reason; of an error without one, as its status suggests."""
    declared = _RETRY_BY_REASON.get(error.reason)
    if declared is not None:
        return declared
    if error.code is grpc.StatusCode.UNAVAILABLE:
        return errors_pb2.RETRY_ELSEWHERE
    if error.code in _BROKEN and not error.reason:
        return errors_pb2.RETRY_ELSEWHERE
    # gRPC's own, for a message that is too large, says nothing of coming again.
    if isinstance(error, ResourceExhausted) and error.retry_after_s is not None:
        return errors_pb2.RETRY_LATER
    return errors_pb2.RETRY_NEVER
