"""One traced answer, and where its time went."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from specmesh.client import GenerationStream
from specmesh.traces.breakdown import Breakdown, breakdown
from specmesh.traces.receiver import TraceReceiver
from specmesh.traces.spans import Span, SpanKind

_FLUSH_MS = 200
_ARRIVAL_TIMEOUT_S = 10.0


def environment(receiver: TraceReceiver) -> Mapping[str, str]:
    """What makes a process of the mesh send its spans, of those answers only that the client
    has begun to trace: the runs that are timed are not traced at all."""
    return {
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": receiver.endpoint,
        "OTEL_TRACES_SAMPLER": "parentbased_always_off",
        "OTEL_BSP_SCHEDULE_DELAY": str(_FLUSH_MS),
    }


async def break_down(stream: GenerationStream, receiver: TraceReceiver) -> Breakdown:
    """Read an answer not yet begun and break it down. Raises TimeoutError if spans are lost.

    From here on this process traces: to be called after everything that is timed.
    """
    resource = Resource.create({"service.name": "specmesh-client"})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    exporter = OTLPSpanExporter(endpoint=receiver.endpoint, insecure=True)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    await stream.text()
    # On a thread of its own, for the receiver needs this one.
    await asyncio.to_thread(provider.shutdown)
    spans = await receiver.wait_until(_is_complete, _ARRIVAL_TIMEOUT_S)
    return breakdown(spans)


def _is_complete(spans: Sequence[Span]) -> bool:
    """Whether every call in the trace has its server's span, up to the client's own."""
    answered = {span.parent_span_id for span in spans if span.kind is SpanKind.SERVER}
    calls = [span for span in spans if span.kind is SpanKind.CLIENT]
    known = {span.span_id for span in spans}
    return (
        any(not call.parent_span_id for call in calls)
        and all(call.span_id in answered or _was_cancelled(call) for call in calls)
        and all(span.parent_span_id in known for span in spans if span.parent_span_id)
    )


def _was_cancelled(call: Span) -> bool:
    return call.is_error or bool(call.attributes.get("specmesh.cancelled"))
