"""The record of a request for its log line, its span and the metrics."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from specmesh.client import GenerationResult
from specmesh.gateway.errors import ApiError
from specmesh.gateway.responses.envelope import usage

CLIENT_CLOSED_REQUEST = 499
"""A status for the log only, since the client that would receive it is gone."""
OTHER_METHOD = "_OTHER"
_METHODS = frozenset(
    {"CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "QUERY", "TRACE"}
)


@dataclass(slots=True)
class Record:
    """The record of one request, filled in as it is answered."""

    request_id: str
    method: str
    path: str
    began_s: float = field(default_factory=time.monotonic)
    route: str = ""
    """The path with names in place of values; empty for an unknown path."""
    status: int = 0
    """The status of the response; 0 if none began."""
    complete: bool = False
    """True once the whole response was sent."""
    identity: str = ""
    model: str = ""
    names: Mapping[str, str] = field(default_factory=dict)
    """The caller's names for parameters, where this call's are not those of chats."""
    is_stream: bool = False
    error: ApiError | None = None
    results: Sequence[GenerationResult] = ()
    num_per_prompt: int = 1
    """The answers to each prompt."""
    first_said_s: float | None = None

    def said(self) -> None:
        """Note the time of the first tokens."""
        if self.first_said_s is None:
            self.first_said_s = time.monotonic()

    def answered(self, results: Sequence[GenerationResult], num_per_prompt: int) -> None:
        """Note the answers, ``num_per_prompt`` of each prompt."""
        self.results = results
        self.num_per_prompt = num_per_prompt

    def failed(self, error: ApiError) -> None:
        """Note the error that the client gets."""
        self.error = error

    @property
    def known_method(self) -> str:
        """The method for metrics: ``_OTHER``, by OpenTelemetry's conventions, for every unknown
        one, of which each would otherwise make a series."""
        return self.method if self.method in _METHODS else OTHER_METHOD

    @property
    def outcome(self) -> str:
        """``ok``, ``error``, or ``cancelled`` if the client disconnected before the end."""
        if self.error is not None:
            return "error"
        is_ok = self.complete and self.status != CLIENT_CLOSED_REQUEST
        return "ok" if is_ok else "cancelled"

    def fields(self) -> dict[str, object]:
        """Return the fields of the log line, without empty ones."""
        now_s = time.monotonic()
        counted = usage(self.results, self.num_per_prompt)
        told: dict[str, object] = {
            "method": self.method,
            "path": self.path,
            "status": self.status,
            "outcome": self.outcome,
            "duration_ms": _ms(now_s - self.began_s),
            "request_id": self.request_id,
            "identity": self.identity,
            "model": self.model,
            "stream": self.is_stream or None,
            "error": self.error and self.error.code,
            "param": self.error and self.error.param,
            "detail": self.error and self.error.detail,
            "sessions": [result.session_id for result in self.results],
            "prompt_tokens": counted["prompt_tokens"],
            "output_tokens": counted["completion_tokens"],
            "first_tokens_ms": self.first_said_s and _ms(self.first_said_s - self.began_s),
        }
        return {name: value for name, value in told.items() if value}


def _ms(seconds: float) -> float:
    return round(seconds * 1e3, 1)
