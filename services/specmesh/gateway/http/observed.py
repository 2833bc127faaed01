"""Middleware that gives every request an id, a trace span, metrics and a log line."""

from __future__ import annotations

import logging
import re
import time
import uuid

from opentelemetry import propagate, trace
from opentelemetry.context import attach, detach
from opentelemetry.metrics import Observation
from opentelemetry.trace import Span, SpanKind
from starlette.datastructures import Headers, MutableHeaders
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from specmesh.gateway.errors import ApiError
from specmesh.gateway.http.leaving import HEALTH_PATHS
from specmesh.gateway.http.record import OTHER_METHOD, Record
from specmesh.serving import conventions as names
from specmesh.serving import metrics
from specmesh.serving.telemetry.pipeline import record_error, tracer

log = logging.getLogger(__name__)

REQUEST_ID = "x-request-id"
MAX_TRACE_STATE_CHARS = 512
"""The length of ``tracestate`` that W3C Trace Context requires to be propagated. Longer ones are
dropped, since gRPC calls have little room for metadata."""
_REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}")

_duration = metrics.HTTP_DURATION.instrument()
_first_tokens = metrics.TIME_TO_FIRST_TOKENS.instrument()


class Observed:
    """The outermost ASGI middleware. It sets ``request.state.record`` to the request's record."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._num_active = 0
        metrics.HTTP_ACTIVE.observe(lambda: [Observation(self._num_active)])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        headers = Headers(scope=scope)
        record = Record(_request_id(headers), scope["method"], scope["path"])
        scope.setdefault("state", {})["record"] = record

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[REQUEST_ID] = record.request_id
                record.status = message["status"]
            await send(message)
            if message["type"] == "http.response.body":
                record.complete = not message.get("more_body", False)

        parent = propagate.extract(_trace_context(headers))
        span = tracer.start_span(record.known_method, context=parent, kind=SpanKind.SERVER)
        token = attach(trace.set_span_in_context(span, parent))
        kind = {names.HTTP_METHOD: record.known_method, names.URL_SCHEME: scope["scheme"]}
        self._num_active += 1
        try:
            await self._app(scope, receive, sending)
        except Exception:  # Starlette has already sent the error, unless a response had begun.
            log.exception("failed", extra={"request_id": record.request_id})
            record.failed(record.error or ApiError(500, "", code="internal"))
        finally:
            self._num_active -= 1
            if isinstance(route := scope.get("route"), Route):
                record.route = route.path
            _measure(record, kind)
            _describe(span, record)
            level = logging.DEBUG if record.route in HEALTH_PATHS else logging.INFO
            log.log(level, "request", extra=record.fields())
            detach(token)
            span.end()


def _request_id(headers: Headers) -> str:
    """Return the caller's id for the request if it is valid, else a new one."""
    given = headers.get(REQUEST_ID, "")
    return given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex


def _trace_context(headers: Headers) -> dict[str, str]:
    """Return the caller's trace context for calls to the mesh to propagate."""
    context = {name: headers[name] for name in ("traceparent", "tracestate") if name in headers}
    if len(context.get("tracestate", "")) > MAX_TRACE_STATE_CHARS:
        del context["tracestate"]
    return context


def _measure(record: Record, kind: dict[str, str]) -> None:
    attributes: dict[str, str | int] = {
        **kind,
        names.HTTP_ROUTE: record.route,
        names.HTTP_STATUS: record.status,
    }
    if record.error is not None:
        attributes[names.ERROR_TYPE] = record.error.code or str(record.status)
    _duration.record(time.monotonic() - record.began_s, attributes)
    if record.first_said_s is not None:
        _first_tokens.record(record.first_said_s - record.began_s, {names.HTTP_ROUTE: record.route})


def _describe(span: Span, record: Record) -> None:
    if not span.is_recording():
        return
    method = record.known_method
    span.update_name(f"{'HTTP' if method == OTHER_METHOD else method} {record.route}".strip())
    span.set_attributes(
        {
            names.HTTP_METHOD: method,
            "url.path": record.path,
            names.HTTP_ROUTE: record.route,
            names.HTTP_STATUS: record.status,
            "specmesh.request_id": record.request_id,
        }
    )
    if method == OTHER_METHOD:
        span.set_attribute("http.request.method_original", record.method)
    if record.results:
        # Collectors compare the durations of requests of the same strategy, and see only the root.
        span.set_attribute(names.STRATEGY, record.results[0].strategy)
    if record.outcome == "cancelled":
        span.set_attribute(names.CANCELLED, True)
    status = record.status if record.error is None else record.error.status
    error_type = (record.error and record.error.code) or str(status)
    if status >= 500:  # noqa: PLR2004
        record_error(span, error_type, "")
    elif record.error is not None:
        # The caller's mistake, for which OpenTelemetry's conventions leave the span's status unset.
        span.set_attribute(names.ERROR_TYPE, error_type)
