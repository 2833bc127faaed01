"""Retry policy for broken calls: whether to retry, and after which pause. No clock, no I/O."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import grpc

from specmesh.client.errors import DeadlineExceeded, ResourceExhausted, SpecmeshError
from specmesh.v1 import errors_pb2

_FIRST_BACKOFF_S = 0.1
_LONGEST_BACKOFF_S = 2.0

_BROKEN = frozenset({grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.CANCELLED})
"""Statuses by which proxies and gRPC itself report a broken connection; an orchestrator's errors
also have a reason."""
_NOT_STORED = frozenset({"NO_STORE", "STORE_UNAVAILABLE", "SESSION_NOT_FOUND"})

_ABOUT_ONE_ANSWER = _NOT_STORED | {"PROMPT_CHANGED", "NEWER_SESSION", "READER_STALLED"}
"""Reasons to continue one answer elsewhere that say nothing about the target's health."""

_RETRY_BY_REASON = {
    value.name.removeprefix("ERROR_REASON_"): value.GetOptions().Extensions[errors_pb2.error].retry
    for value in errors_pb2.ErrorReason.DESCRIPTOR.values
    if value.number
}


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Limits after which an answer is given up."""

    timeout_s: float
    """Deadline of the whole answer."""
    start_s: float
    """Timeout of the next event of a call whose answer has not begun."""
    idle_s: float
    """Longest silence of an open stream whose orchestrator sends no heartbeats."""
    num_targets: int
    """Number of orchestrators that the targets stand for; before the answer begins, each of the
    others is tried once without a pause."""
    max_retries: int
    """Number of retries before the answer begins, not counting those without a pause."""
    max_resumes: int
    """Number of calls in a row that may break without a token once the answer has begun."""


class Recovery:
    """The count of one answer's broken calls; ``rng`` draws the jitter of its pauses."""

    def __init__(self, limits: RetryPolicy, rng: Random) -> None:
        self._limits = limits
        self._rng = rng
        self.num_broken = 0
        """Number of calls in a row that broke without a token."""
        self._num_paused = 0

    def progressed(self) -> None:
        """Record that a token came."""
        self.num_broken = 0

    def pause_s(
        self, error: SpecmeshError, *, has_begun: bool, others_have_room: bool = False
    ) -> float | None:
        """Count a call that broke by ``error``, and return the pause before the next call in
        seconds; None if ``error`` is final. ``others_have_room`` says that the next target may have
        room for an answer for which this one had none."""
        self.num_broken += 1
        if not may_call_again(error) or (has_begun and self.num_broken > self._limits.max_resumes):
            return None
        # No pause at first, since the next target is probably healthy, or has room.
        num_at_once = 1 if has_begun else self._limits.num_targets - 1
        is_later = _retry(error) == errors_pb2.RETRY_LATER
        if self.num_broken <= num_at_once and (others_have_room or not is_later):
            return 0.0
        self._num_paused += 1
        if not has_begun and self._num_paused > self._limits.max_retries:
            return None
        if is_later:
            return max(error.retry_after_s or 0.0, self._backoff_s(self.num_broken))
        pause_s = self._backoff_s(self.num_broken - num_at_once)
        if self._limits.num_targets == 1 and error.retry_after_s is not None:
            return max(pause_s, error.retry_after_s)
        return pause_s

    def _backoff_s(self, number: int) -> float:
        """Return the length of pause ``number``, counted from 1: exponential, with jitter."""
        longest_s = min(_FIRST_BACKOFF_S * 2.0 ** min(number - 1, 30), _LONGEST_BACKOFF_S)
        return longest_s * self._rng.uniform(0.5, 1)


def deadline_passed() -> DeadlineExceeded:
    """Return the error of an answer whose deadline passed before a call."""
    return DeadlineExceeded("the deadline passed", code=grpc.StatusCode.DEADLINE_EXCEEDED)


def out_of_time(deadline: SpecmeshError, broken: SpecmeshError | None) -> SpecmeshError:
    """Return the error ``deadline`` with the error of the call before it, ``broken``, which tells
    the user what the time was spent on."""
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
    """Return whether the same call may succeed at another target or later."""
    return _retry(error) != errors_pb2.RETRY_NEVER


def is_lost(error: SpecmeshError) -> bool:
    """Return whether the target broke, as opposed to refusing this call only."""
    return _retry(error) == errors_pb2.RETRY_ELSEWHERE and error.reason not in _ABOUT_ONE_ANSWER


def has_no_room(error: SpecmeshError) -> bool:
    """Return whether the target had no room for the answer; each target has room of its own."""
    return error.reason == "OVERLOADED"


def is_not_stored(error: SpecmeshError) -> bool:
    """Return whether only the stored session is missing: the answer can continue without it."""
    return error.reason in _NOT_STORED


def _retry(error: SpecmeshError) -> errors_pb2.Retry.ValueType:
    """Return the retry rule that errors.proto declares for the error's reason; without a reason,
    the one that its status suggests."""
    declared = _RETRY_BY_REASON.get(error.reason)
    if declared is not None:
        return declared
    if error.code is grpc.StatusCode.UNAVAILABLE:
        return errors_pb2.RETRY_ELSEWHERE
    if error.code in _BROKEN and not error.reason:
        return errors_pb2.RETRY_ELSEWHERE
    # gRPC's own RESOURCE_EXHAUSTED, for a message that is too large, has no retry delay.
    if isinstance(error, ResourceExhausted) and error.retry_after_s is not None:
        return errors_pb2.RETRY_LATER
    return errors_pb2.RETRY_NEVER
