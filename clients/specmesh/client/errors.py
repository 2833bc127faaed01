"""The client's exceptions: one class for every gRPC status, in one tree.

::

    SpecmeshError
    ├── Cancelled              by `close`, or by a server or proxy       CANCELLED
    ├── Unknown                a peer gave no better status              UNKNOWN
    ├── InvalidRequest         a field is wrong: ``field_violations``    INVALID_ARGUMENT
    ├── DeadlineExceeded       the caller's time ran out                 DEADLINE_EXCEEDED
    ├── NotFound               no such model or session                  NOT_FOUND
    ├── AlreadyExists          another request has this request id       ALREADY_EXISTS
    ├── PermissionDenied       not with this certificate or token        PERMISSION_DENIED
    ├── ResourceExhausted      out of capacity: ``retry_after_s``        RESOURCE_EXHAUSTED
    │   ├── Overloaded           of the mesh                               OVERLOADED,
    │   │                                                                  VERIFIERS_BUSY
    │   └── LimitReached         of this identity                          LIMIT_REACHED
    ├── FailedPrecondition     not possible now: see ``reason``          FAILED_PRECONDITION
    ├── Aborted                another call took precedence              ABORTED
    │   ├── SessionTaken         it resumed the session                    STALE_EPOCH
    │   └── SessionCancelled     it cancelled the session                  SESSION_CANCELLED
    ├── OutOfRange             not from specmesh, but from a proxy       OUT_OF_RANGE
    ├── Unimplemented          the server is older than the client       UNIMPLEMENTED
    ├── Internal               the server or a proxy failed              INTERNAL
    ├── Unavailable            no target reachable, or each broke        UNAVAILABLE
    ├── DataLoss               not from specmesh, but from a proxy       DATA_LOSS
    └── Unauthenticated        the token is missing or invalid           UNAUTHENTICATED

The right column is the gRPC status or, for the indented subclasses, the reason.
"""

# Classes are named after the gRPC statuses; only the root is called an error.

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import grpc

if TYPE_CHECKING:
    from specmesh.client.answers.sessions import SavedSession


@dataclass(frozen=True, slots=True)
class FieldViolation:
    """One field of a request that a server refused, and why."""

    field: str
    description: str
    reason: str = ""
    """Machine-readable where a program can act on it, such as CONTEXT_LENGTH_EXCEEDED."""


class SpecmeshError(Exception):
    """Base of all errors of this package; its cause is the gRPC error, if there was one.

    ``code`` is the gRPC status. ``reason`` (empty if the server gave none) and ``metadata``
    are the machine-readable part of the error: decide by them, never by the text.
    ``retry_after_s`` is the delay before the next call that the server asked for, if any.
    If the answer had begun, ``session`` holds what was received, with its ``text`` and
    ``session_id``; ``client.resume(error.session)`` continues it.
    """

    session: SavedSession | None = None

    def __init__(
        self,
        message: str,
        *,
        code: grpc.StatusCode,
        reason: str = "",
        metadata: Mapping[str, str] | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.metadata = dict(metadata or {})
        self.retry_after_s = retry_after_s

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the attributes too, so that multiprocessing can raise the error again; by default
        exceptions are rebuilt from ``args`` alone."""
        return _restored, (type(self), self.args), vars(self)


def _restored(kind: type[SpecmeshError], args: tuple[object, ...]) -> SpecmeshError:
    return kind.__new__(kind, *args)


class Cancelled(SpecmeshError):
    """The stream or its client was closed before the end, or a proxy, or a server that is shutting
    down, cancelled the call."""


class Unknown(SpecmeshError):
    """A proxy, or a peer that is not an orchestrator, gave no better status."""


class InvalidRequest(SpecmeshError):
    """A field is wrong; ``field_violations`` says which. Retrying the same request is useless."""

    field_violations: tuple[FieldViolation, ...] = ()


class DeadlineExceeded(SpecmeshError):
    """The time given for the call ran out."""


class NotFound(SpecmeshError):
    """The model is unknown, or the session has expired."""


class AlreadyExists(SpecmeshError):
    """Another request already used this ``request_id``."""


class PermissionDenied(SpecmeshError):
    """The caller is not allowed to do this."""


class ResourceExhausted(SpecmeshError):
    """A capacity or limit is used up; retry after ``retry_after_s`` seconds, unless it is None."""


class Overloaded(ResourceExhausted):
    """The mesh sheds load."""


class LimitReached(ResourceExhausted):
    """The caller's identity has used up its limit."""


class FailedPrecondition(SpecmeshError):
    """The mesh can't do this in its current state; ``reason`` names what is missing."""


class Aborted(SpecmeshError):
    """Another call took precedence over this one."""


class SessionTaken(Aborted):
    """Another call has taken over this session."""


class SessionCancelled(Aborted):
    """Another holder of the session's resume token cancelled it."""


class OutOfRange(SpecmeshError):
    """A proxy sent this status; orchestrators never do."""


class Unimplemented(SpecmeshError):
    """The server has no such method: it is older than this client, or not an orchestrator."""


class Internal(SpecmeshError):
    """The server has a bug, or violated the protocol."""


class Unavailable(SpecmeshError):
    """No target could be reached, or the stream broke and could not be resumed."""


class DataLoss(SpecmeshError):
    """A proxy sent this status; orchestrators never do."""


class Unauthenticated(SpecmeshError):
    """The call's token is missing or invalid, or the function that gives it failed."""
