"""Errors for callers, and the one place where they become gRPC statuses.

    ServiceError
      NotFound             NOT_FOUND            the thing named does not exist
      FailedPrecondition   FAILED_PRECONDITION  not in this state; a retry is useless
      AlreadyExists        ALREADY_EXISTS       the name is taken by something else
      Aborted              ABORTED              lost a race, or cancelled by somebody else
      ResourceExhausted    RESOURCE_EXHAUSTED   overloaded; retry later
      Unavailable          UNAVAILABLE          this replica can't answer now; retry on another
      DeadlineExceeded     DEADLINE_EXCEEDED    the caller's deadline has passed
      Unauthenticated      UNAUTHENTICATED      the caller hasn't proved its identity
      PermissionDenied     PERMISSION_DENIED    the caller may not call this method
      InvalidArgument      INVALID_ARGUMENT     the request as a whole can't be accepted
      Unimplemented        UNIMPLEMENTED        there is no such method
    InvalidField           INVALID_ARGUMENT     a field of the request is wrong

Each status carries ``google.rpc.ErrorInfo`` with a reason in UPPER_SNAKE_CASE. Programs decide on
the reason; the message is for people only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, TypeVar

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError, Message
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status
from grpc_status import rpc_status

from specmesh.decoding.errors import ContextExceeded, InvalidField

DOMAIN = "specmesh.dev"

MAX_MESSAGE_BYTES = 1024
MAX_VALUE_BYTES = 256
"""Limits for messages and metadata, which may repeat the caller's input: clients accept 8 KiB of
trailers, and these hold a message twice, once percent-encoded with up to three bytes per byte."""

CONTEXT_LENGTH_EXCEEDED = "CONTEXT_LENGTH_EXCEEDED"
"""The reason of a ``FieldViolation``, as OpenAI calls it."""

_DETAILS_KEY = "grpc-status-details-bin"


class ServiceError(Exception):
    """An error for the caller. Only subclasses, which have a status code, are raised.

    Programs decide on ``reason`` and use ``metadata`` to act on it.
    """

    code: ClassVar[grpc.StatusCode]

    def __init__(
        self, reason: str, message: str, metadata: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.metadata = dict(metadata or {})


class NotFoundStatus(ServiceError):
    """The thing named does not exist."""

    code = grpc.StatusCode.NOT_FOUND


class FailedPreconditionStatus(ServiceError):
    """The current state does not allow the call; a retry would fail again."""

    code = grpc.StatusCode.FAILED_PRECONDITION


class AlreadyExistsStatus(ServiceError):
    """Something else has this name already."""

    code = grpc.StatusCode.ALREADY_EXISTS


class AbortedStatus(ServiceError):
    """Another writer won a race for the same thing, or somebody else has cancelled it."""

    code = grpc.StatusCode.ABORTED


class ResourceExhaustedStatus(ServiceError):
    """The server is overloaded; ``retry_after_s`` is the delay after which to retry."""

    code = grpc.StatusCode.RESOURCE_EXHAUSTED

    def __init__(
        self,
        reason: str,
        message: str,
        metadata: Mapping[str, str] | None = None,
        *,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(reason, message, metadata)
        self.retry_after_s = retry_after_s


class UnavailableStatus(ServiceError):
    """This replica cannot answer now; another may."""

    code = grpc.StatusCode.UNAVAILABLE


class DeadlineExceededStatus(ServiceError):
    """The caller's deadline has passed."""

    code = grpc.StatusCode.DEADLINE_EXCEEDED


class UnauthenticatedStatus(ServiceError):
    """The caller has not proved its identity."""

    code = grpc.StatusCode.UNAUTHENTICATED


class PermissionDeniedStatus(ServiceError):
    """The caller may not call this method."""

    code = grpc.StatusCode.PERMISSION_DENIED


class InvalidArgument(ServiceError):
    """The request as a whole cannot be accepted; no single field is wrong."""

    code = grpc.StatusCode.INVALID_ARGUMENT


class UnimplementedStatus(ServiceError):
    """There is no such method."""

    code = grpc.StatusCode.UNIMPLEMENTED


def to_status(error: ServiceError | InvalidField) -> grpc.Status:
    """Return the gRPC status for ``error``, with its ``google.rpc`` details."""
    if isinstance(error, InvalidField):
        field = _cut(error.field, MAX_VALUE_BYTES)
        violation = BadRequest.FieldViolation(
            field=field,
            description=_cut(error.reason, MAX_MESSAGE_BYTES),
            reason=CONTEXT_LENGTH_EXCEEDED if isinstance(error, ContextExceeded) else "",
        )
        return _status(
            grpc.StatusCode.INVALID_ARGUMENT,
            str(error),
            ErrorInfo(reason="INVALID_FIELD", domain=DOMAIN, metadata={"field": field}),
            BadRequest(field_violations=[violation]),
        )
    metadata = {key: _cut(value, MAX_VALUE_BYTES) for key, value in error.metadata.items()}
    details: list[Message] = [ErrorInfo(reason=error.reason, domain=DOMAIN, metadata=metadata)]
    if isinstance(error, ResourceExhaustedStatus) and error.retry_after_s is not None:
        retry = RetryInfo()
        retry.retry_delay.FromNanoseconds(round(error.retry_after_s * 1e9))
        details.append(retry)
    return _status(error.code, error.message, *details)


def internal_status(request_id: str) -> grpc.Status:
    """Return the status for an unexpected error. It doesn't reveal the cause, which the log has
    under ``request_id``."""
    info = ErrorInfo(reason="INTERNAL", domain=DOMAIN, metadata={"request_id": request_id})
    return _status(grpc.StatusCode.INTERNAL, "internal error", info)


def error_info(error: grpc.aio.AioRpcError) -> ErrorInfo | None:
    """Return the reason that a specmesh peer gave for a failed call; None if it gave none."""
    info = _find(error, ErrorInfo())
    return info if info is not None and info.domain == DOMAIN else None


def retry_after_s(error: grpc.aio.AioRpcError) -> float | None:
    """Return the retry delay in seconds that the peer gave; None if it gave none."""
    retry = _find(error, RetryInfo())
    return None if retry is None else retry.retry_delay.ToNanoseconds() / 1e9


def invalid_field(error: grpc.aio.AioRpcError) -> InvalidField | None:
    """Return the field that the peer refused; None if the call failed for another reason."""
    request = _find(error, BadRequest())
    if request is None or not request.field_violations:
        return None
    violation = request.field_violations[0]
    return InvalidField(violation.field, violation.description)


Detail = TypeVar("Detail", bound=Message)


def _find(error: grpc.aio.AioRpcError, detail: Detail) -> Detail | None:
    for key, value in error.trailing_metadata() or ():
        if key == _DETAILS_KEY and isinstance(value, bytes):
            try:
                status = Status.FromString(value)
            except DecodeError:
                return None
            return next((detail for packed in status.details if packed.Unpack(detail)), None)
    return None


def _status(code: grpc.StatusCode, message: str, *details: Message) -> grpc.Status:
    packed = []
    for detail in details:
        packed.append(AnyMessage())
        packed[-1].Pack(detail)
    status: grpc.Status = rpc_status.to_status(
        Status(code=code.value[0], message=_cut(message, MAX_MESSAGE_BYTES), details=packed)
    )
    return status


def _cut(text: str, most_bytes: int) -> str:
    """Return ``text``, cut to ``most_bytes`` and followed by dots if it is longer."""
    data = text.encode(errors="replace")
    if len(data) <= most_bytes:
        return text
    return data[:most_bytes].decode(errors="ignore") + "..."
