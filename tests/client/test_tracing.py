"""The client's span, and the context that servers hang theirs below."""

import grpc
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import NoOpTracer, SpanKind, StatusCode
from tests.client.conftest import (
    FakeOrchestrator,
    breaks_after,
    refuses,
    rest_of_answer,
    whole_answer,
)

from specmesh.client import AsyncClient, Client, NotFound, telemetry
from specmesh.client.testing import FakeMesh


@pytest.fixture
def exported(monkeypatch):
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(telemetry, "_tracer", provider.get_tracer("test"))
    yield exporter
    provider.shutdown()


async def test_an_answer_is_one_client_span_with_genai_attributes(serve, exported):
    fake = await serve(FakeOrchestrator([whole_answer]))
    async with AsyncClient(fake.address) as client:
        await client.generate("hello", temperature=0, max_tokens=12, seed=7)
    (span,) = exported.get_finished_spans()
    assert (span.name, span.kind) == ("specmesh.generate", SpanKind.CLIENT)
    assert span.status.status_code is StatusCode.UNSET
    attributes = dict(span.attributes)
    assert attributes.pop("gen_ai.response.time_to_first_chunk") > 0
    assert attributes.pop("server.port") == int(fake.address.split(":")[1])
    assert attributes == {
        "gen_ai.operation.name": "text_completion",
        "gen_ai.provider.name": "specmesh",
        "gen_ai.request.stream": True,
        "gen_ai.request.temperature": 0,
        "gen_ai.request.max_tokens": 12,
        "gen_ai.request.seed": 7,
        "gen_ai.response.id": "s-1",
        "gen_ai.response.model": "toy",
        "gen_ai.response.finish_reasons": ("length",),
        "gen_ai.usage.input_tokens": 3,
        "gen_ai.usage.output_tokens": 12,
        "server.address": "127.0.0.1",
        "specmesh.strategy": "speculative",
        "specmesh.resumes": 0,
    }


async def test_no_text_of_a_request_is_on_its_span(serve, exported):
    fake = await serve(FakeOrchestrator([whole_answer]))
    async with AsyncClient(fake.address) as client:
        await client.generate("a secret", stop_strings=["secret"], bad_words=["secret"])
    (span,) = exported.get_finished_spans()
    assert "secret" not in str(dict(span.attributes))


async def test_every_call_of_an_answer_carries_the_same_trace(serve, exported):
    first = await serve(FakeOrchestrator([breaks_after(4)]))
    second = await serve(FakeOrchestrator(resume=[rest_of_answer(4)]))
    async with AsyncClient(first.address, second.address) as client:
        await client.generate("hello")
    (span,) = exported.get_finished_spans()
    context = span.get_span_context()
    parent = f"00-{context.trace_id:032x}-{context.span_id:016x}-"
    assert first.metadata[0]["traceparent"].startswith(parent)
    assert second.metadata[0]["traceparent"].startswith(parent)
    assert span.attributes["specmesh.resumes"] == 1


async def test_a_failed_answer_is_an_error_and_a_cancelled_one_is_not(serve, exported):
    fake = await serve(FakeOrchestrator([refuses(grpc.StatusCode.NOT_FOUND), whole_answer]))
    async with AsyncClient(fake.address) as client:
        with pytest.raises(NotFound):
            await client.generate("hello")
        iterator = aiter(client.generate("hello"))
        await anext(iterator)
        await iterator.aclose()
    failed, cancelled = exported.get_finished_spans()
    assert failed.status.status_code is StatusCode.ERROR
    assert failed.attributes["error.type"] == "NotFound"
    assert cancelled.status.status_code is StatusCode.UNSET
    assert cancelled.attributes["specmesh.cancelled"] is True


async def test_without_a_telemetry_sdk_no_context_is_sent(serve, monkeypatch):
    monkeypatch.setattr(telemetry, "_tracer", NoOpTracer())
    fake = await serve(FakeOrchestrator([whole_answer]))
    async with AsyncClient(fake.address) as client:
        await client.generate("hello")
    assert "traceparent" not in fake.metadata[0]


def test_the_synchronous_client_carries_the_callers_trace_on(exported):
    with (
        FakeMesh() as mesh,
        Client(mesh.address) as client,
        telemetry._tracer.start_as_current_span("the caller's") as caller,
    ):
        mesh.answer("fine")
        client.complete("hello")
    context = caller.get_span_context()
    assert mesh.metadata[0]["traceparent"].startswith(f"00-{context.trace_id:032x}-")
    spans = {span.name: span for span in exported.get_finished_spans()}
    assert spans["specmesh.generate"].parent.span_id == context.span_id


def test_calls_without_a_span_of_their_own_carry_the_callers_trace_on(exported):
    with (
        FakeMesh() as mesh,
        Client(mesh.address) as client,
        telemetry._tracer.start_as_current_span("the caller's") as caller,
    ):
        client.list_models()
        client.tokenize("hello")
    context = caller.get_span_context()
    parent = f"00-{context.trace_id:032x}-{context.span_id:016x}-"
    assert [each["traceparent"].startswith(parent) for each in mesh.metadata] == [True, True]
