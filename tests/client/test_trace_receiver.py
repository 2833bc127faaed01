"""Real spans from a real exporter, over a real socket."""

import asyncio
import json

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from specmesh.traces.receiver import TraceReceiver
from specmesh.traces.spans import Node, SpanKind


def send_two_spans(endpoint):
    """A client span that failed and, below it, one with attributes of every kind."""
    resource = Resource({"service.name": "specmesh-verifier", "service.instance.id": "v-1"})
    provider = TracerProvider(resource=resource)
    exporter = OTLPSpanExporter(endpoint=endpoint, insecure=True)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("test")
    parent = tracer.start_span("parent", kind=trace.SpanKind.CLIENT)
    child = tracer.start_span("child", context=trace.set_span_in_context(parent))
    child.set_attributes({"text": "x", "yes": True, "count": 3, "ms": 1.5, "list": ["a", "b"]})
    child.end()
    parent.set_status(trace.StatusCode.ERROR, "lost")
    parent.end()
    provider.shutdown()


async def test_spans_arrive_with_their_node_parent_and_attributes(tmp_path):
    file = tmp_path / "traces.jsonl"
    async with TraceReceiver(file) as receiver:
        await asyncio.to_thread(send_two_spans, receiver.endpoint)
    child, parent = receiver.spans
    assert child.node == Node("specmesh-verifier", "v-1")
    assert (child.name, child.kind, child.parent_span_id) == (
        "child",
        SpanKind.INTERNAL,
        parent.span_id,
    )
    assert child.attributes == {
        "text": "x",
        "yes": True,
        "count": 3,
        "ms": 1.5,
        "list": ("a", "b"),
    }
    assert (child.number("ms"), child.number("text"), child.number("none")) == (1.5, 0, 0)
    assert (parent.kind, parent.parent_span_id) == (SpanKind.CLIENT, "")
    assert (parent.is_error, child.is_error) == (True, False)
    assert 0 < child.duration_ms <= parent.duration_ms
    written = [
        span
        for line in file.read_text().splitlines()
        for resource in json.loads(line)["resourceSpans"]
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    ]
    assert [span["spanId"] for span in written] == [child.span_id, parent.span_id]
    assert {span["traceId"] for span in written} == {child.trace_id}
    assert written[0]["kind"] == 1
