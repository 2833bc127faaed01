"""The exit statuses of ``specmesh``, by which scripts decide."""

from __future__ import annotations

from enum import IntEnum

from specmesh.client import (
    AlreadyExists,
    DeadlineExceeded,
    FailedPrecondition,
    InvalidRequest,
    NotFound,
    PermissionDenied,
    ResourceExhausted,
    SpecmeshError,
    Unauthenticated,
    Unavailable,
)
from specmesh.client.connections.recovery import may_call_again


class ExitStatus(IntEnum):
    """An exit status; docs/cli.md lists them, too."""

    OK = 0
    FAILED = 1
    """Any failure without a status of its own, such as a bug in a service."""
    USAGE = 2
    """The command line or a field of the request is wrong."""
    UNAVAILABLE = 3
    """No orchestrator, or none of its replicas, can be reached; a retry may succeed."""
    BUSY = 4
    """The mesh is overloaded or the caller's limit is reached; retry later."""
    NOT_FOUND = 5
    """There is no such model or session."""
    REFUSED = 6
    """The mesh can't do this in its present state, as without a drafter or a chat template."""
    DENIED = 7
    """The certificate or token is missing, invalid, or not allowed to do this."""
    TIMEOUT = 8
    """The timeout has expired."""
    INTERRUPTED = 130
    """The user pressed Ctrl-C."""


_STATUSES: tuple[tuple[type[SpecmeshError], ExitStatus], ...] = (
    (InvalidRequest, ExitStatus.USAGE),
    (Unavailable, ExitStatus.UNAVAILABLE),
    (ResourceExhausted, ExitStatus.BUSY),
    (NotFound, ExitStatus.NOT_FOUND),
    (FailedPrecondition, ExitStatus.REFUSED),
    (AlreadyExists, ExitStatus.REFUSED),
    (PermissionDenied, ExitStatus.DENIED),
    (Unauthenticated, ExitStatus.DENIED),
    (DeadlineExceeded, ExitStatus.TIMEOUT),
)


def status_of(error: SpecmeshError) -> ExitStatus:
    """Return the exit status of a command that ``error`` ended."""
    if isinstance(error, ResourceExhausted) and not may_call_again(error):
        return ExitStatus.USAGE  # The request itself is larger than gRPC or the mesh takes.
    return next(
        (status for kind, status in _STATUSES if isinstance(error, kind)), ExitStatus.FAILED
    )
