"""Traces that begin in the generator, so that ``specmesh trace show ID`` finds a slow request.

The spans of the generator and of the SDK go to the OTLP endpoint that the environment sets. Without
one only the trace ids travel with requests, and a trace consists of the servers' spans.
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
    """Export the spans of the block as the environment sets. Raises `InvalidTelemetry`."""
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
    """Make calls in the block part of a new sampled trace; yields its id, 32 hexadecimal digits."""
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
