"""The client's exceptions, as one tree.

::

    SpecmeshError
    ├── InvalidRequest       a field is wrong                        INVALID_ARGUMENT
    ├── NotFound             no such model or session                NOT_FOUND
    ├── FailedPrecondition   not in this state, see ``reason``       FAILED_PRECONDITION
    ├── Overloaded           come back after ``retry_after_s``       RESOURCE_EXHAUSTED
    ├── Unavailable          no target reachable, or each broke      UNAVAILABLE
    ├── DeadlineExceeded     the caller's time ran out               DEADLINE_EXCEEDED
    ├── SessionTaken         another call took over the session      ABORTED
    └── Internal             anything else: a bug on either side
"""

# Classes are named for the gRPC statuses they stand for; only the root is called an error.

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import grpc


@dataclass(frozen=True, slots=True)
class FieldViolation:
    """One field of a request that a server refused, and why."""

    field: str
    description: str


class SpecmeshError(Exception):
    """Base of all errors of this package; the gRPC error, where there was one, is its cause.

    ``code`` is the gRPC status. ``reason`` (empty if the server gave none) and ``metadata``
    are the machine-readable part of the server's answer: decide by them, never by the text.
    """

    def __init__(
        self,
        message: str,
        *,
        code: grpc.StatusCode,
        reason: str = "",
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.metadata = dict(metadata or {})


class InvalidRequest(SpecmeshError):
    """A field is wrong; ``field_violations`` says which. Repeating the request is useless."""

    def __init__(
        self,
        message: str,
        *,
        code: grpc.StatusCode = grpc.StatusCode.INVALID_ARGUMENT,
        reason: str = "",
        metadata: Mapping[str, str] | None = None,
        field_violations: tuple[FieldViolation, ...] = (),
    ) -> None:
        super().__init__(message, code=code, reason=reason, metadata=metadata)
        self.field_violations = field_violations


class NotFound(SpecmeshError):
    """The model is unknown, or the session has expired."""


class FailedPrecondition(SpecmeshError):
    """The mesh is not in a state to do this; ``reason`` names what is missing."""


class Overloaded(SpecmeshError):
    """The mesh sheds load; try again after ``retry_after_s`` seconds (None: it did not say)."""

    def __init__(
        self,
        message: str,
        *,
        code: grpc.StatusCode = grpc.StatusCode.RESOURCE_EXHAUSTED,
        reason: str = "",
        metadata: Mapping[str, str] | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message, code=code, reason=reason, metadata=metadata)
        self.retry_after_s = retry_after_s


class Unavailable(SpecmeshError):
    """No target could be reached, or the stream broke and could not be resumed."""


class DeadlineExceeded(SpecmeshError):
    """The time given for the call ran out."""


class SessionTaken(SpecmeshError):
    """Another call has taken over this session."""


class Internal(SpecmeshError):
    """A bug, or a peer that does not speak this protocol; ``code`` is the status it sent."""
