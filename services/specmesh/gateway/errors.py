"""Errors in OpenAI's shape, and the one place where the mesh's become them.

    {"error": {"message": …, "type": …, "param": …, "code": …}}

``code`` is what programs decide on: the mesh's reason in lower case, or one of OpenAI's own. The
header ``x-should-retry`` says whether the same request may fare better, for OpenAI's clients would
repeat whatever is 408, 409, 429 or above 499.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Self

import grpc

from specmesh.client import InvalidRequest, SpecmeshError
from specmesh.client.connections.recovery import may_call_again

MAX_PARAM_CHARS = 256
UNAVAILABLE_RETRY_S = 1.0
"""When to come again if nobody said."""

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
"""By the status of a gRPC call; any other is 500."""

_REASON_STATUSES = {
    "REQUEST_BREAKS_REPLICAS": 500,
    "TARGET_REPLACED": 503,
    "SESSION_NOT_FOUND": 500,
    "NOT_A_GATEWAY": 500,
    "MESSAGE_TOO_LARGE": 413,
    "METADATA_TOO_LARGE": 431,
}
"""Where a reason says that it isn't the request's fault, or that it is worth another try."""

_PUBLIC_WORDS = {
    500: "the mesh failed at this request",
    501: "the mesh does not know this method",
    503: "the mesh cannot answer at the moment",
    504: "the answer did not come in time",
}
"""For what is not the caller's doing: the mesh's own words name replicas and their addresses, which
are for the log."""

_CODES = {401: "invalid_api_key", 403: "permission_denied", 404: "model_not_found"}
"""OpenAI's own words for what the mesh has a reason for as well."""

_PARAMS = {
    "NO_FITTING_DRAFTER": "specmesh.strategy",
    "NO_CONFIDENCE_SERVICE": "specmesh.strategy",
    "KV_CACHE_TOO_SMALL": "max_tokens",
    "MODEL_NOT_FOUND": "model",
    "NO_CHAT_TEMPLATE": "messages",
    "CHAT_REFUSED": "messages",
    "REQUEST_ID_REUSED": "specmesh.request_id",
}
"""By reason, where no field is named."""

_FEATURE_PARAMS = {
    "LOGPROBS": "logprobs",
    "REJECTION_MODE": "specmesh.acceptance_mode",
    "HEADS": "specmesh.strategy",
}
"""By the feature that the target's replicas lack, with reason UNSUPPORTED_FEATURE."""

_FIELDS: tuple[tuple[str, str], ...] = (
    (r"sampling\.(temperature|top_p|seed)", r"\1"),
    (r"sampling\.(top_k|acceptance_mode)", r"specmesh.\1"),
    (r"stopping\.max_tokens", "max_tokens"),
    (r"stopping\.stop_strings", "stop"),
    (r"stopping\.(\w+)", r"specmesh.\1"),
    (r"speculation\.(\w+)", r"specmesh.\1"),
    (r"(?:prompt|text|tokens\.ids|tokens)", "prompt"),
    (r"chat\.(add_generation_prompt|continue_final_message)", r"\1"),
    (r"chat\.template_arguments", "chat_template_kwargs"),
    (r"(?:chat\.messages|chat)", "messages"),
    (r"num_top_logprobs", "logprobs"),
    (r"request_id", "specmesh.request_id"),
)
"""The beginning of a path in ``GenerateRequest``, and what it is called here."""


class ApiError(Exception):
    """An error that the caller is told, with its HTTP status."""

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
        """What is said of it in the log alone."""

    @classmethod
    def invalid(cls, param: str | None, message: str, *, code: str = "invalid_value") -> Self:
        """A body that can't be answered, whoever sends it and when."""
        return cls(400, message, param=param, code=code)

    @property
    def body(self) -> dict[str, object]:
        """What is sent."""
        error = {
            "message": self.message,
            "type": self.type,
            "param": self.param,
            "code": self.code,
        }
        return {"error": error}

    @property
    def headers(self) -> dict[str, str]:
        """What is sent beside it."""
        headers = {"x-should-retry": "true" if self.retry else "false"}
        if self.retry_after_s is not None:
            headers["retry-after"] = str(math.ceil(self.retry_after_s))
            headers["retry-after-ms"] = str(math.ceil(self.retry_after_s * 1e3))
        if self.status == HTTPStatus.UNAUTHORIZED:  # RFC 9110 demands the header
            headers["www-authenticate"] = "Bearer"
        return headers


def from_mesh(error: SpecmeshError) -> ApiError:
    """What a caller of the gateway is told of an error of the mesh."""
    status = _status(error)
    retry_after_s = error.retry_after_s
    unavailable = status == HTTPStatus.SERVICE_UNAVAILABLE
    if unavailable and retry_after_s is None:
        retry_after_s = UNAVAILABLE_RETRY_S
    param, message = _param_and_message(error)
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
        # gRPC itself says so of a message larger than it takes.
        return HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    return _REASON_STATUSES.get(error.reason, _STATUSES.get(error.code, 500))


def _code(error: SpecmeshError) -> str:
    """What is wrong with a field, if it has a name, else the reason, else the status."""
    violations = error.field_violations if isinstance(error, InvalidRequest) else ()
    told = next((each.reason for each in violations if each.reason), error.reason)
    return told.lower() or error.code.name.lower()


def _type(status: int) -> str:
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return "rate_limit_error"
    return "server_error" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "invalid_request_error"


def internal(request_id: str) -> ApiError:
    """What a caller is told of an error that should not be."""
    message = f"something went wrong here; the log has it under request id {request_id}"
    return ApiError(500, message, type="server_error", code="internal")


def overloaded(message: str) -> ApiError:
    """What a caller is told of a gateway that has as much to do as it can hold."""
    return ApiError(
        HTTPStatus.TOO_MANY_REQUESTS,
        message,
        type=_type(HTTPStatus.TOO_MANY_REQUESTS),
        code="overloaded",
        retry=True,
        retry_after_s=UNAVAILABLE_RETRY_S,
    )


def _param_and_message(error: SpecmeshError) -> tuple[str | None, str]:
    """What is wrong, and how: under the caller's name for it, not that of the mesh."""
    if isinstance(error, InvalidRequest) and error.field_violations:
        first = error.field_violations[0]
        field = param_of(first.field)
        return field, f"{field!r}: {first.description}"
    param = _PARAMS.get(error.reason) or _FEATURE_PARAMS.get(error.metadata.get("feature", ""))
    return param, str(error)


def param_of(field: str) -> str:
    """OpenAI's name, or ours, of a field of ``GenerateRequest``."""
    for pattern, name in _FIELDS:
        renamed, count = re.subn(rf"^{pattern}(?=$|[.\[])", name, field)
        if count:
            return renamed
    return field
