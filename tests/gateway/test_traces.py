"""The gateway's span of a request tells how it ended."""

from __future__ import annotations

import grpc
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.client.conftest import refuses, whole_answer
from tests.gateway.wire import until

from specmesh.gateway.http import observed

ASKED = {"model": "toy", "prompt": "hello"}


@pytest.fixture
def exported(monkeypatch):
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(observed, "tracer", provider.get_tracer("test"))
    yield exporter
    provider.shutdown()


async def the_span(exported):
    await until(exported.get_finished_spans)
    (span,) = exported.get_finished_spans()
    return span


async def test_a_refused_request_has_the_type_of_its_error(gateway, orchestrator, exported):
    orchestrator.generate_scripts = [refuses(grpc.StatusCode.NOT_FOUND, reason="MODEL_NOT_FOUND")]
    response = await gateway.post("/v1/completions", ASKED)
    span = await the_span(exported)
    assert span.attributes["http.response.status_code"] == response.status_code == 404
    assert span.attributes["error.type"] == response.json()["error"]["code"]
    assert span.status.is_unset


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answered_request_has_its_strategy_and_no_error(
    gateway, orchestrator, exported, stream
):
    orchestrator.generate_scripts = [whole_answer]
    await gateway.post("/v1/completions", ASKED | {"stream": stream})
    attributes = (await the_span(exported)).attributes
    assert attributes["specmesh.strategy"] == "speculative"
    assert "error.type" not in attributes
