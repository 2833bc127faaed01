"""The only conversion of gRPC statuses to errors of this package."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError, Message
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status

from specmesh.client import errors
from specmesh.client.errors import FieldViolation, InvalidRequest, SpecmeshError

_DETAILS_KEY = "grpc-status-details-bin"
_DOMAIN = "specmesh.dev"

_BY_STATUS: Mapping[grpc.StatusCode, type[SpecmeshError]] = {
    grpc.StatusCode.CANCELLED: errors.Cancelled,
    grpc.StatusCode.UNKNOWN: errors.Unknown,
    grpc.StatusCode.INVALID_ARGUMENT: errors.InvalidRequest,
    grpc.StatusCode.DEADLINE_EXCEEDED: errors.DeadlineExceeded,
    grpc.StatusCode.NOT_FOUND: errors.NotFound,
    grpc.StatusCode.ALREADY_EXISTS: errors.AlreadyExists,
    grpc.StatusCode.PERMISSION_DENIED: errors.PermissionDenied,
    grpc.StatusCode.RESOURCE_EXHAUSTED: errors.ResourceExhausted,
    grpc.StatusCode.FAILED_PRECONDITION: errors.FailedPrecondition,
    grpc.StatusCode.ABORTED: errors.Aborted,
    grpc.StatusCode.OUT_OF_RANGE: errors.OutOfRange,
    grpc.StatusCode.UNIMPLEMENTED: errors.Unimplemented,
    grpc.StatusCode.INTERNAL: errors.Internal,
    grpc.StatusCode.UNAVAILABLE: errors.Unavailable,
    grpc.StatusCode.DATA_LOSS: errors.DataLoss,
    grpc.StatusCode.UNAUTHENTICATED: errors.Unauthenticated,
}
_BY_REASON: Mapping[str, type[SpecmeshError]] = {
    "OVERLOADED": errors.Overloaded,
    "VERIFIERS_BUSY": errors.Overloaded,
    "LIMIT_REACHED": errors.LimitReached,
    "STALE_EPOCH": errors.SessionTaken,
    "SESSION_CANCELLED": errors.SessionCancelled,
}
"""Reasons with an error class of their own, a subclass of their status's."""

M = TypeVar("M", bound=Message)


def from_rpc_error(error: grpc.aio.AioRpcError) -> SpecmeshError:
    """Convert the error of a failed call, which the caller raises ``from`` it without a traceback:
    that would keep the call, and with it gRPC, alive for as long as somebody keeps the error, and
    then a child that is forked can't use gRPC."""
    details = _details(error)
    info = _our_info(details)
    by_status = _BY_STATUS.get(error.code(), errors.Unknown)
    by_reason = _BY_REASON.get(info.reason, by_status)
    kind = by_reason if issubclass(by_reason, by_status) else by_status
    mapped = kind(
        error.details() or error.code().name,
        code=error.code(),
        reason=info.reason,
        metadata=dict(info.metadata),
        retry_after_s=_retry_after_s(details),
    )
    if isinstance(mapped, InvalidRequest):
        mapped.field_violations = _violations(details)
    return mapped


def _details(error: grpc.aio.AioRpcError) -> list[AnyMessage]:
    """Return the ``google.rpc`` details; empty if the peer sent none or they can't be parsed."""
    for key, value in error.trailing_metadata() or ():
        if key == _DETAILS_KEY and isinstance(value, bytes):
            try:
                return list(Status.FromString(value).details)
            except DecodeError:
                return []
    return []


def _our_info(details: list[AnyMessage]) -> ErrorInfo:
    """Return the orchestrator's ErrorInfo; empty if the error comes from a proxy, whose reasons
    have another domain."""
    for detail in details:
        info = ErrorInfo()
        if detail.Unpack(info) and info.domain == _DOMAIN:
            return info
    return ErrorInfo()


def _find(details: list[AnyMessage], message: M) -> M | None:
    for detail in details:
        if detail.Unpack(message):
            return message
    return None


def _violations(details: list[AnyMessage]) -> tuple[FieldViolation, ...]:
    bad_request = _find(details, BadRequest()) or BadRequest()
    return tuple(
        FieldViolation(violation.field, violation.description, violation.reason)
        for violation in bad_request.field_violations
    )


def _retry_after_s(details: list[AnyMessage]) -> float | None:
    retry = _find(details, RetryInfo())
    return None if retry is None else retry.retry_delay.ToTimedelta().total_seconds()
