"""OpenTelemetry: the exporters of the process, and spans and durations of calls to other services.

Without an exporter in the environment and a port for metrics, nothing is sent.
``serving.conventions`` has the names.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from types import TracebackType
from typing import Self

import grpc.aio
from opentelemetry import metrics, propagate, trace
from opentelemetry.context import Context
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.trace import Span, SpanKind, StatusCode
from opentelemetry.util.types import AttributeValue

from specmesh.serving import conventions as names
from specmesh.serving.conventions import CANCELLED, ERROR_TYPE, RPC_STATUS
from specmesh.serving.histograms import Series
from specmesh.serving.metrics import CLIENT_CALL_DURATION
from specmesh.serving.telemetry.exporters import (
    check_environment,
    histogram_temporality,
    metric_exporter,
    span_exporter,
)
from specmesh.serving.telemetry.readers import PushReader
from specmesh.serving.telemetry.scrape import Scrape

FLUSH_SECONDS = 2.0
"""The time for which a process that ends waits for a collector."""

tracer = trace.get_tracer("specmesh")
_OK = grpc.StatusCode.OK.name
_client_duration = CLIENT_CALL_DURATION.instrument()


@dataclass(frozen=True, slots=True)
class _Pipeline:
    shutdown: Callable[[], None]
    give_up: Callable[[], None]


class Telemetry:
    """The exporters that ``configure`` started."""

    def __init__(self, pipelines: list[_Pipeline]) -> None:
        self._pipelines = pipelines

    def shutdown(self) -> None:
        """Send the remaining data. This blocks, but briefly even if the collector is away."""
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
                # The SDK's own timeouts are 30 s; closing its channel ends a hanging call.
                pipeline.give_up()
                thread.join(FLUSH_SECONDS)


def configure(role: str, instance: str, scrape: Scrape | None = None) -> Telemetry:
    """Start the exporters of traces and metrics that the environment asks for (see `exporters`),
    and provide metrics to ``scrape``.

    Sampling, headers and intervals follow the other standard ``OTEL_*`` variables. Call this once
    per process. Raises `InvalidTelemetry`.
    """
    check_environment()
    resource = Resource.create(
        {
            names.SERVICE_NAME: f"specmesh-{role}",
            names.SERVICE_INSTANCE: instance,
            names.SERVICE_VERSION: package_version(),
        }
    )
    spans_to, metrics_to = span_exporter(), metric_exporter()
    pipelines = []
    if spans_to is not None:
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        from specmesh.serving.telemetry.sampler import sampler

        tracer_provider = TracerProvider(sampler(), resource, shutdown_on_exit=False)
        tracer_provider.add_span_processor(BatchSpanProcessor(spans_to))
        trace.set_tracer_provider(tracer_provider)
        pipelines.append(_Pipeline(tracer_provider.shutdown, spans_to.shutdown))
    readers: list[MetricReader] = [] if scrape is None else [scrape.reader]
    give_up: Callable[[], None] = lambda: None  # noqa: E731
    if metrics_to is not None:
        readers.append(PushReader(metrics_to, histogram_temporality()))
        give_up = metrics_to.shutdown
    if readers:
        meter_provider = MeterProvider(readers, resource=resource, shutdown_on_exit=False)
        metrics.set_meter_provider(meter_provider)
        pipelines.append(_Pipeline(meter_provider.shutdown, give_up))
    return Telemetry(pipelines)


def package_version() -> str:
    """Return the version of specmesh."""
    try:
        return version("specmesh")
    except PackageNotFoundError:  # run from its sources
        return "unknown"


def tracing_enabled() -> bool:
    """Return True if the process has a tracer provider."""
    absent = (trace.ProxyTracerProvider, trace.NoOpTracerProvider)
    return not isinstance(trace.get_tracer_provider(), absent)


def metrics_enabled() -> bool:
    """Return True if the process has a meter provider."""
    return isinstance(metrics.get_meter_provider(), MeterProvider)


def annotate(**values: AttributeValue) -> None:
    """Set ``specmesh.<name>`` on the current span, if it is recorded."""
    span = trace.get_current_span()
    if span.is_recording():
        span.set_attributes({f"specmesh.{name}": value for name, value in values.items()})


def is_recorded(context: Context | None = None) -> bool:
    """Return whether spans are recorded below the one of ``context`` (default: the current one). A
    span that records nothing costs some 10 microseconds to make."""
    span = trace.get_current_span(context)
    begins_trace = not span.get_span_context().is_valid
    return span.is_recording() or (begins_trace and tracing_enabled())


class ClientSpan:
    """A CLIENT span around a call, and the W3C trace context that the call must carry. The call's
    duration is recorded, too, if it is ``measured``.

    ``method`` is the full name, "specmesh.mesh.v1alpha1.VerifierService/Verify", ``address`` the
    callee's "host:port". ``describe`` returns attributes; it is called if the span is recorded.
    ``recorded`` is what ``is_recorded`` says of the parent, if the caller knows it.

    The span is a child of ``parent`` (default: the current context). It does not become the current
    span, so it may live in an async generator that is closed in another context. A cancelled call
    is not an error.
    """

    def __init__(
        self,
        method: str,
        address: str,
        describe: Callable[[], Mapping[str, AttributeValue]] = dict,
        parent: Context | None = None,
        *,
        recorded: bool | None = None,
        measured: bool = True,
    ) -> None:
        self._is_measured = measured
        self._method = method
        self._parent = parent
        self.carrier: dict[str, str] = {}
        self.span = trace.get_current_span(parent)
        self._is_recorded = is_recorded(parent) if recorded is None else recorded
        if self._is_recorded:
            self.span = tracer.start_span(method, context=parent, kind=SpanKind.CLIENT)
            self.span.set_attributes({**_callee(method, address), **describe()})
        if self.span is not trace.INVALID_SPAN and self.span.get_span_context().is_valid:
            propagate.inject(self.carrier, context=trace.set_span_in_context(self.span, parent))
        self._began = time.perf_counter()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.end(error)

    def end(self, error: BaseException | None = None) -> None:
        """Record the end of the call, with its ``error`` if it failed; at the end of a ``with``
        block this is done already."""
        status = _OK if error is None else _status_of(error)
        if self._is_recorded:
            if error is None:
                self.span.set_attribute(RPC_STATUS, status)
            else:
                _record_client_failure(self.span, error)
            self.span.end()
        if self._is_measured:
            seconds = time.perf_counter() - self._began
            _durations(self._method, status).record(seconds)


@lru_cache(maxsize=1024)
def _callee(method: str, address: str) -> dict[str, str | int]:
    host, _, port = address.rpartition(":")
    callee: dict[str, str | int] = {
        names.RPC_SYSTEM: names.GRPC,
        names.RPC_METHOD: method,
        names.SERVER_ADDRESS: host,
    }
    return callee | {names.SERVER_PORT: int(port)} if port.isdecimal() else callee


@lru_cache(maxsize=1024)
def _durations(method: str, status: str) -> Series:
    """Return the durations of calls. Their attributes leave out the address: replicas come and go,
    but their series would stay forever."""
    attributes = {names.RPC_SYSTEM: names.GRPC, names.RPC_METHOD: method, RPC_STATUS: status}
    if status not in {_OK, grpc.StatusCode.CANCELLED.name}:
        attributes[ERROR_TYPE] = status
    return _client_duration.series(attributes)


def _status_of(error: BaseException) -> str:
    """Return the status of a call that ended with ``error``."""
    if isinstance(error, grpc.aio.AioRpcError):
        return error.code().name
    if isinstance(error, asyncio.CancelledError | GeneratorExit):
        return grpc.StatusCode.CANCELLED.name
    return grpc.StatusCode.UNKNOWN.name


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
