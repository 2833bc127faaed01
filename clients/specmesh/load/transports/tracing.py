"""Traces that begin here, so that a slow request can be looked up: ``specmesh trace show ID``.

The spans of the generator and of the SDK are sent as the environment asks, by an OTLP endpoint;
without one only the ids travel with the request, and the servers' spans are the trace.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry import context, trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

from specmesh.serving.telemetry.exporters import span_exporter

_ids = RandomIdGenerator()


@contextmanager
def exporting() -> Iterator[None]:
    """Send the spans of the block as the environment asks. Raises `UnsupportedExporter`."""
    exporter = span_exporter()
    if exporter is None:
        yield
        return
    provider = TracerProvider(resource=Resource.create({"service.name": "specmesh-load"}))
    provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    try:
        yield
    finally:
        provider.shutdown()


@contextmanager
def traced() -> Iterator[str]:
    """A sampled trace that calls in the block are part of; gives its id, 32 hexadecimal digits."""
    with trace.get_tracer("specmesh.load").start_as_current_span("specmesh.load") as span:
        if span.get_span_context().is_valid:
            yield trace.format_trace_id(span.get_span_context().trace_id)
            return
    made = trace.SpanContext(
        _ids.generate_trace_id(),
        _ids.generate_span_id(),
        is_remote=False,
        trace_flags=trace.TraceFlags(trace.TraceFlags.SAMPLED),
    )
    token = context.attach(trace.set_span_in_context(trace.NonRecordingSpan(made)))
    try:
        yield trace.format_trace_id(made.trace_id)
    finally:
        context.detach(token)
