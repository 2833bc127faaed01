"""Spans of the requests that a server answers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import grpc.aio
from opentelemetry import propagate, trace
from opentelemetry.context import attach, detach
from opentelemetry.trace import Span, SpanKind

from specmesh.serving.conventions import CANCELLED, GRPC, RPC_METHOD, RPC_STATUS, RPC_SYSTEM
from specmesh.serving.rpc.call_metrics import SERVER_FAULTS, status_of
from specmesh.serving.rpc.observed_request import Context, ObservedRequest
from specmesh.serving.telemetry.pipeline import record_error, tracer


@contextmanager
def traced(request: ObservedRequest) -> Iterator[None]:
    """Continue the caller's trace with a SERVER span named after the method.

    This must be the outermost layer: within it, that is the current span. The span of a cancelled
    request has ``specmesh.cancelled`` and no error, since a mesh that races branches cancels on
    purpose. A server can't tell a cancellation from the caller's expired deadline; the caller's
    span can.
    """
    carrier = request.trace_context
    parent = propagate.extract(_text_metadata(request.context) if carrier is None else carrier)
    span = tracer.start_span(
        request.method,
        context=parent,
        kind=SpanKind.SERVER,
        attributes={RPC_SYSTEM: GRPC, RPC_METHOD: request.method},
    )
    token = attach(trace.set_span_in_context(span, parent))
    try:
        yield
    except (asyncio.CancelledError, grpc.aio.InternalError, GeneratorExit):
        # InternalError: a message could not be sent, since the peer is gone.
        # GeneratorExit: nobody requests the next message any more.
        span.set_attribute(CANCELLED, True)
        raise
    except grpc.aio.AbortError:
        _record_status(span, request.context)
        raise
    except BaseException as error:
        record_error(span, type(error).__name__, "")
        raise
    else:
        _record_status(span, request.context)
    finally:
        detach(token)
        span.end()


def _text_metadata(context: Context) -> dict[str, str]:
    metadata = context.invocation_metadata() or ()
    return {key: value for key, value in metadata if isinstance(value, str)}


def _record_status(span: Span, context: Context) -> None:
    code = status_of(context)
    span.set_attribute(RPC_STATUS, code.name)
    if code in SERVER_FAULTS:
        record_error(span, code.name, context.details())
