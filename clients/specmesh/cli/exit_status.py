"""The exit statuses of ``specmesh``: what scripts decide by."""

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


class ExitStatus(IntEnum):
    """The table in README lists them, too."""

    OK = 0
    FAILED = 1
    """Anything that has no status of its own; the service or the mesh broke."""
    USAGE = 2
    """The command line or a field of the request is wrong."""
    UNAVAILABLE = 3
    """No orchestrator, or none of its replicas, can be reached: try again."""
    BUSY = 4
    """The mesh is full or the caller's limit is reached: try again later."""
    NOT_FOUND = 5
    """No such model or session."""
    REFUSED = 6
    """The mesh can't do this as it stands: a strategy without a drafter, no chat template."""
    DENIED = 7
    """The certificate or token is missing, wrong, or not allowed to do this."""
    TIMEOUT = 8
    """The time given has run out."""
    INTERRUPTED = 130
    """Ctrl-C."""


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
    """The status of a command that ``error`` ended."""
    return next(
        (status for kind, status in _STATUSES if isinstance(error, kind)), ExitStatus.FAILED
    )
