"""The client's exceptions: one for every status of gRPC, as one tree.

::

    SpecmeshError
    ├── Cancelled              somebody on the way cancelled the call    CANCELLED
    ├── Unknown                a peer that gives no better status        UNKNOWN
    ├── InvalidRequest         a field is wrong: ``field_violations``    INVALID_ARGUMENT
    ├── DeadlineExceeded       the caller's time ran out                 DEADLINE_EXCEEDED
    ├── NotFound               no such model or session                  NOT_FOUND
    ├── AlreadyExists          the request id is another request's       ALREADY_EXISTS
    ├── PermissionDenied       not with this certificate or token        PERMISSION_DENIED
    ├── ResourceExhausted      too much: ``retry_after_s``               RESOURCE_EXHAUSTED
    │   ├── Overloaded           for the mesh                              OVERLOADED,
    │   │                                                                  VERIFIERS_BUSY
    │   └── LimitReached         for this identity                         LIMIT_REACHED
    ├── FailedPrecondition     not in this state, see ``reason``         FAILED_PRECONDITION
    ├── Aborted                the call lost to another one              ABORTED
    │   ├── SessionTaken         that carries the session on               STALE_EPOCH
    │   └── SessionCancelled     that cancelled the session                SESSION_CANCELLED
    ├── OutOfRange             nothing of specmesh's own says so         OUT_OF_RANGE
    ├── Unimplemented          the server is older than the client       UNIMPLEMENTED
    ├── Internal               an error of the server or on the way      INTERNAL
    ├── Unavailable            no target reachable, or each broke        UNAVAILABLE
    ├── DataLoss               nothing of specmesh's own says so         DATA_LOSS
    └── Unauthenticated        no token, or none that is valid           UNAUTHENTICATED

On the right the status; of those further in, the reasons.
"""

# Classes are named for the gRPC statuses they stand for; only the root is called an error.

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
    """For programs, where there is something to decide: CONTEXT_LENGTH_EXCEEDED."""


class SpecmeshError(Exception):
    """Base of all errors of this package; the gRPC error, where there was one, is its cause.

    ``code`` is the gRPC status. ``reason`` (empty if the server gave none) and ``metadata``
    are the machine-readable part of the server's answer: decide by them, never by the text.
    ``retry_after_s`` is how long to wait before calling again, if the server said so.
    ``session`` is what was received of an answer that had begun, with its ``text`` and
    ``session_id``; ``client.resume(error.session)`` carries it on.
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
        """What a process that is to raise it again makes it of, as multiprocessing does: other
        exceptions are made of ``args`` alone."""
        return _restored, (type(self), self.args), vars(self)


def _restored(kind: type[SpecmeshError], args: tuple[object, ...]) -> SpecmeshError:
    return kind.__new__(kind, *args)


class Cancelled(SpecmeshError):
    """The call was cancelled, and not by its caller: by a proxy, or a server that is going."""


class Unknown(SpecmeshError):
    """A peer that is no orchestrator, or a proxy, gave no better status."""


class InvalidRequest(SpecmeshError):
    """A field is wrong; ``field_violations`` says which. Repeating the request is useless."""

    field_violations: tuple[FieldViolation, ...] = ()


class DeadlineExceeded(SpecmeshError):
    """The time given for the call ran out."""


class NotFound(SpecmeshError):
    """The model is unknown, or the session has expired."""


class AlreadyExists(SpecmeshError):
    """Another request had this ``request_id``."""


class PermissionDenied(SpecmeshError):
    """Who calls may not do this."""


class ResourceExhausted(SpecmeshError):
    """Too much was asked for; try again after ``retry_after_s`` seconds (None: it did not say)."""


class Overloaded(ResourceExhausted):
    """The mesh sheds load."""


class LimitReached(ResourceExhausted):
    """The caller's identity has used up what it may use."""


class FailedPrecondition(SpecmeshError):
    """The mesh is not in a state to do this; ``reason`` names what is missing."""


class Aborted(SpecmeshError):
    """The call lost to another one."""


class SessionTaken(Aborted):
    """Another call has taken over this session."""


class SessionCancelled(Aborted):
    """The session was cancelled, by whoever has its resume token."""


class OutOfRange(SpecmeshError):
    """No orchestrator says so: something on the way did."""


class Unimplemented(SpecmeshError):
    """The server has no such method: it is older than this client, or no orchestrator."""


class Internal(SpecmeshError):
    """The server failed at what it should be able to do, or broke the protocol."""


class Unavailable(SpecmeshError):
    """No target could be reached, or the stream broke and could not be resumed."""


class DataLoss(SpecmeshError):
    """No orchestrator says so: something on the way did."""


class Unauthenticated(SpecmeshError):
    """The call had no token, or none that is valid."""
