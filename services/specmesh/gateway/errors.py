"""Errors in OpenAI's shape, and the one place that maps the mesh's errors to them.

    {"error": {"message": …, "type": …, "param": …, "code": …}}

Programs decide on ``code``: the mesh's reason in lower case, or a code of OpenAI's. The header
``x-should-retry`` says whether a retry may succeed; without it, OpenAI's clients would retry every
408, 409, 429 and 5xx.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from http import HTTPStatus
from typing import Self

import grpc

from specmesh.client import InvalidRequest, SpecmeshError
from specmesh.client.connections.recovery import may_call_again
from specmesh.gateway.field_names import param_of, renamed, renamed_in

MAX_PARAM_CHARS = 256
UNAVAILABLE_RETRY_S = 1.0
"""The retry delay for a 503 if the mesh gave none."""

_STATUSES: Mapping[grpc.StatusCode, int] = {
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.OUT_OF_RANGE: 400,
    grpc.StatusCode.FAILED_PRECONDITION: 400,
    grpc.StatusCode.UNAUTHENTICATED: 401,
    grpc.StatusCode.PERMISSION_DENIED: 403,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.ALREADY_EXISTS: 409,
    grpc.StatusCode.ABORTED: 409,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
    grpc.StatusCode.UNIMPLEMENTED: 501,
    grpc.StatusCode.UNAVAILABLE: 503,
    grpc.StatusCode.DEADLINE_EXCEEDED: 504,
}
"""HTTP status by gRPC status; any other is 500."""

_REASON_STATUSES = {
    "REQUEST_BREAKS_REPLICAS": 500,
    "LOGITS_NOT_FINITE": 500,
    "TARGET_REPLACED": 503,
    "SESSION_NOT_FOUND": 500,
    "NOT_A_GATEWAY": 500,
    "WRONG_ROLE": 500,
    "WRONG_TRUST_DOMAIN": 500,
    "MESSAGE_TOO_LARGE": 413,
    "METADATA_TOO_LARGE": 431,
}
"""HTTP status by reason, where the reason is more specific than the gRPC status: the fault is not
the caller's, or a retry may succeed."""

_PUBLIC_WORDS = {
    500: "the mesh failed to answer this request",
    501: "the mesh does not know this method",
    503: "the mesh cannot answer at the moment",
    504: "the mesh did not answer in time",
}
"""Messages for errors that are not the caller's fault: the mesh's own messages name replicas and
their addresses, and go to the log only."""

_CODES = {401: "invalid_api_key", 403: "permission_denied", 404: "model_not_found"}
"""OpenAI's codes, which take the place of the mesh's reasons."""
_UNREASONED_CODES = {grpc.StatusCode.DEADLINE_EXCEEDED: "deadline"}
"""Codes of errors without a reason, where the mesh has one for the same: the gateway's own limit of
time must not have another."""

_PARAMS = {
    "NO_FITTING_DRAFTER": "specmesh.strategy",
    "NO_CONFIDENCE_SERVICE": "specmesh.strategy",
    "KV_CACHE_TOO_SMALL": "max_tokens",
    "MODEL_NOT_FOUND": "model",
    "NO_CHAT_TEMPLATE": "messages",
    "CHAT_REFUSED": "messages",
    "NO_TOOL_FORMAT": "tools",
    "REQUEST_ID_REUSED": "specmesh.request_id",
}
"""The parameter at fault, by the reason of an error that names no field."""

_FEATURE_PARAMS = {
    "LOGPROBS": "logprobs",
    "REJECTION_MODE": "specmesh.acceptance_mode",
    "HEADS": "specmesh.strategy",
    "GRAMMARS": "response_format",
    "NODE_LOGPROBS": "echo",
}
"""The parameter at fault, by the feature that the target's replicas lack (reason
UNSUPPORTED_FEATURE)."""


class ApiError(Exception):
    """An error to report to the caller, with its HTTP status."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        type: str = "invalid_request_error",  # noqa: A002 - OpenAI's word
        param: str | None = None,
        code: str | None = None,
        retry: bool = False,
        retry_after_s: float | None = None,
        detail: str = "",
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.type = type
        self.param = None if param is None else param[:MAX_PARAM_CHARS]
        self.code = code
        self.retry = retry
        self.retry_after_s = retry_after_s
        self.detail = detail
        """An explanation for the log only."""

    @classmethod
    def invalid(cls, param: str | None, message: str, *, code: str = "invalid_value") -> Self:
        """Return a 400 for a request that is wrong in itself, so that no retry can succeed."""
        return cls(400, message, param=param, code=code)

    @property
    def body(self) -> dict[str, object]:
        """The JSON body of the response."""
        error = {
            "message": self.message,
            "type": self.type,
            "param": self.param,
            "code": self.code,
        }
        return {"error": error}

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the response."""
        headers = {"x-should-retry": "true" if self.retry else "false"}
        if self.retry_after_s is not None:
            headers["retry-after"] = str(math.ceil(self.retry_after_s))
            headers["retry-after-ms"] = str(math.ceil(self.retry_after_s * 1e3))
        if self.status == HTTPStatus.UNAUTHORIZED:  # RFC 9110 demands the header
            headers["www-authenticate"] = "Bearer"
        return headers


def from_mesh(error: SpecmeshError, names: Mapping[str, str], *, knows_caller: bool) -> ApiError:
    """Map an error of the mesh to the error that the gateway's caller gets. ``names`` maps names of
    parameters to those that the caller has for them, where they differ. ``knows_caller`` tells that
    the gateway has authenticated the caller, so that the mesh has seen the gateway's token alone.
    """
    status = _status(error)
    if knows_caller and status == HTTPStatus.UNAUTHORIZED:
        status = HTTPStatus.INTERNAL_SERVER_ERROR
    retry_after_s = error.retry_after_s
    unavailable = status == HTTPStatus.SERVICE_UNAVAILABLE
    if unavailable and retry_after_s is None:
        retry_after_s = UNAVAILABLE_RETRY_S
    param, message = _param_and_message(error, names)
    public = _PUBLIC_WORDS.get(status)
    return ApiError(
        status,
        public or message,
        type=_type(status),
        param=param,
        code=_CODES.get(status) or _code(error),
        retry=unavailable or may_call_again(error),
        retry_after_s=retry_after_s,
        detail=message if public else "",
    )


def _status(error: SpecmeshError) -> int:
    if error.code is grpc.StatusCode.RESOURCE_EXHAUSTED and not (
        error.reason or error.retry_after_s
    ):
        # gRPC itself uses this status for a message above its size limit.
        return HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    return _REASON_STATUSES.get(error.reason, _STATUSES.get(error.code, 500))


def _code(error: SpecmeshError) -> str:
    """Return the reason of a field violation, else that of the error, else the gRPC status."""
    violations = error.field_violations if isinstance(error, InvalidRequest) else ()
    told = next((each.reason for each in violations if each.reason), error.reason)
    return told.lower() or _UNREASONED_CODES.get(error.code, error.code.name.lower())


def _type(status: int) -> str:
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return "rate_limit_error"
    return "server_error" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "invalid_request_error"


def internal(request_id: str) -> ApiError:
    """Return the error for an unexpected exception, whose details go to the log only."""
    message = f"internal error; the gateway's log has details under request id {request_id}"
    return ApiError(500, message, type="server_error", code="internal")


def overloaded(message: str) -> ApiError:
    """Return the 429 of a gateway that has reached one of its limits."""
    return ApiError(
        HTTPStatus.TOO_MANY_REQUESTS,
        message,
        type=_type(HTTPStatus.TOO_MANY_REQUESTS),
        code="overloaded",
        retry=True,
        retry_after_s=UNAVAILABLE_RETRY_S,
    )


def shutting_down() -> ApiError:
    """Return the 503 of a gateway that ends before its answer does."""
    return ApiError(
        HTTPStatus.SERVICE_UNAVAILABLE,
        "the gateway is shutting down",
        type=_type(HTTPStatus.SERVICE_UNAVAILABLE),
        code="unavailable",
        retry=True,
        retry_after_s=UNAVAILABLE_RETRY_S,
    )


def _param_and_message(error: SpecmeshError, names: Mapping[str, str]) -> tuple[str | None, str]:
    """Return the parameter at fault and a message, both under the caller's name for the field."""
    if isinstance(error, InvalidRequest) and error.field_violations:
        first = error.field_violations[0]
        field = renamed(param_of(first.field), names)
        return field, f"{field!r}: {renamed_in(first.description, names)}"
    # What a chat template ignores has the name that callers have for it.
    ignored, feature = (error.metadata.get(name, "") for name in ("ignored", "feature"))
    # Many parameters need the same logit processing; the request has said which of them it has.
    param = (
        ignored or _PARAMS.get(error.reason) or _FEATURE_PARAMS.get(feature) or names.get(feature)
    )
    if param is None:
        return None, str(error)
    return renamed(param, names), renamed_in(str(error), names)
