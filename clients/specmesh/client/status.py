"""The one place where gRPC statuses become errors of this package."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError, Message
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status

from specmesh.client.errors import (
    DeadlineExceeded,
    FailedPrecondition,
    FieldViolation,
    Internal,
    InvalidRequest,
    NotFound,
    Overloaded,
    SessionTaken,
    SpecmeshError,
    Unavailable,
)

_DETAILS_KEY = "grpc-status-details-bin"

_PLAIN_ERRORS: Mapping[grpc.StatusCode, type[SpecmeshError]] = {
    grpc.StatusCode.NOT_FOUND: NotFound,
    grpc.StatusCode.FAILED_PRECONDITION: FailedPrecondition,
    grpc.StatusCode.UNAVAILABLE: Unavailable,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
    grpc.StatusCode.ABORTED: SessionTaken,
}

M = TypeVar("M", bound=Message)


def from_rpc_error(error: grpc.aio.AioRpcError) -> SpecmeshError:
    """The error of this package for a failed call, to be raised from it."""
    details = _details(error)
    info = _find(details, ErrorInfo()) or ErrorInfo()
    common: dict[str, Any] = {
        "code": error.code(),
        "reason": info.reason,
        "metadata": dict(info.metadata),
    }
    message = error.details() or error.code().name
    if error.code() is grpc.StatusCode.INVALID_ARGUMENT:
        return InvalidRequest(message, field_violations=_violations(details), **common)
    if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return Overloaded(message, retry_after_s=_retry_after_s(details), **common)
    return _PLAIN_ERRORS.get(error.code(), Internal)(message, **common)


def _details(error: grpc.aio.AioRpcError) -> list[AnyMessage]:
    """The ``google.rpc`` details; none if the peer sent none or they are not readable."""
    for key, value in error.trailing_metadata() or ():
        if key == _DETAILS_KEY and isinstance(value, bytes):
            try:
                return list(Status.FromString(value).details)
            except DecodeError:
                return []
    return []


def _find(details: list[AnyMessage], message: M) -> M | None:
    for detail in details:
        if detail.Unpack(message):
            return message
    return None


def _violations(details: list[AnyMessage]) -> tuple[FieldViolation, ...]:
    bad_request = _find(details, BadRequest()) or BadRequest()
    return tuple(
        FieldViolation(violation.field, violation.description)
        for violation in bad_request.field_violations
    )


def _retry_after_s(details: list[AnyMessage]) -> float | None:
    retry = _find(details, RetryInfo())
    return None if retry is None else retry.retry_delay.ToTimedelta().total_seconds()
