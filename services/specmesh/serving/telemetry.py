"""OpenTelemetry: exporters of the process, and the spans around calls to other services.

Without an OTLP endpoint in the environment nothing here costs or sends anything. Attribute names
follow the RPC conventions of OpenTelemetry, ``specmesh.*`` where there is none.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import grpc.aio
from opentelemetry import metrics, propagate, trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, StatusCode
from opentelemetry.util.types import AttributeValue

RPC_SYSTEM = "rpc.system.name"
RPC_METHOD = "rpc.method"
RPC_STATUS = "rpc.response.status_code"
ERROR_TYPE = "error.type"
CANCELLED = "specmesh.cancelled"

MILLISECONDS = (
    *(0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0),
    *(100.0, 200.0, 500.0, 1_000.0, 2_000.0, 5_000.0, 10_000.0),
)
"""Bucket boundaries for times in ms, from a small model's forward pass on."""

FLUSH_SECONDS = 2.0
"""How long a process that ends waits for a collector."""

tracer = trace.get_tracer("specmesh")


@dataclass(frozen=True, slots=True)
class _Pipeline:
    shutdown: Callable[[], None]
    give_up: Callable[[], None]


class Telemetry:
    """The exporters that ``configure`` started."""

    def __init__(self, pipelines: list[_Pipeline]) -> None:
        self._pipelines = pipelines

    def shutdown(self) -> None:
        """Send what is left; returns soon even if the collector is away. Blocks."""
        threads = [
            threading.Thread(target=pipeline.shutdown, name="telemetry-flush", daemon=True)
            for pipeline in self._pipelines
        ]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + FLUSH_SECONDS
        for thread, pipeline in zip(threads, self._pipelines, strict=True):
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                # The SDK's own limits are 30 s. Closing its channel ends a call that hangs.
                pipeline.give_up()
                thread.join(FLUSH_SECONDS)


def configure(role: str, instance: str) -> Telemetry:
    """Send traces and metrics to where ``OTEL_EXPORTER_OTLP_*ENDPOINT`` says, if it says so.

    Sampling, headers and intervals follow the other standard ``OTEL_*`` variables. To be
    called once a process.
    """
    resource = Resource.create(
        {"service.name": f"specmesh-{role}", "service.instance.id": instance}
    )
    pipelines = []
    if _endpoint_set("TRACES"):
        span_exporter = OTLPSpanExporter()
        tracer_provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        tracer_provider.add_span_processor(BatchSpanProcessor(span_exporter))
        trace.set_tracer_provider(tracer_provider)
        pipelines.append(_Pipeline(tracer_provider.shutdown, span_exporter.shutdown))
    if _endpoint_set("METRICS"):
        metric_exporter = OTLPMetricExporter()
        reader = PeriodicExportingMetricReader(metric_exporter)
        meter_provider = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
        metrics.set_meter_provider(meter_provider)
        pipelines.append(_Pipeline(meter_provider.shutdown, metric_exporter.shutdown))
    return Telemetry(pipelines)


def _endpoint_set(signal: str) -> bool:
    names = ("OTEL_EXPORTER_OTLP_ENDPOINT", f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")
    return any(os.environ.get(name) for name in names)


def tracing_enabled() -> bool:
    """Whether the process has a tracer provider."""
    absent = (trace.ProxyTracerProvider, trace.NoOpTracerProvider)
    return not isinstance(trace.get_tracer_provider(), absent)


def annotate(**values: AttributeValue) -> None:
    """Set ``specmesh.<name>`` on the current span, if it is recorded."""
    span = trace.get_current_span()
    if span.is_recording():
        span.set_attributes({f"specmesh.{name}": value for name, value in values.items()})


@contextmanager
def client_span(
    method: str,
    address: str,
    attributes: Mapping[str, AttributeValue] | None = None,
    parent: Context | None = None,
) -> Iterator[tuple[Span, dict[str, str]]]:
    """A CLIENT span around a call of ``method`` ("specmesh.v1.VerifierService/Verify") at
    ``address`` ("host:port"), and the W3C trace context that the call must carry.

    It is a child of ``parent`` (default: the current context) and is not made the current span, so
    it may live in an async generator that is closed in another context. A cancelled call is no
    error.
    """
    span = tracer.start_span(method, context=parent, kind=SpanKind.CLIENT)
    if not span.get_span_context().is_valid:  # there is no tracer provider
        yield span, {}
        return
    if span.is_recording():
        host, _, port = address.rpartition(":")
        span.set_attributes({RPC_SYSTEM: "grpc", RPC_METHOD: method, "server.address": host})
        if port.isdecimal():
            span.set_attribute("server.port", int(port))
        span.set_attributes(attributes or {})
    carrier: dict[str, str] = {}
    propagate.inject(carrier, context=trace.set_span_in_context(span, parent))
    try:
        yield span, carrier
    except BaseException as error:
        _record_client_failure(span, error)
        raise
    else:
        span.set_attribute(RPC_STATUS, grpc.StatusCode.OK.name)
    finally:
        span.end()


def _record_client_failure(span: Span, error: BaseException) -> None:
    if isinstance(error, grpc.aio.AioRpcError):
        code = error.code()
        span.set_attribute(RPC_STATUS, code.name)
        if code is grpc.StatusCode.CANCELLED:
            span.set_attribute(CANCELLED, True)
        else:
            record_error(span, code.name, error.details() or "")
    elif isinstance(error, asyncio.CancelledError | GeneratorExit):
        span.set_attribute(CANCELLED, True)
    else:
        record_error(span, type(error).__name__, str(error))


def record_error(span: Span, error_type: str, description: str) -> None:
    """Mark ``span`` as failed."""
    span.set_attribute(ERROR_TYPE, error_type)
    span.set_status(StatusCode.ERROR, description)
