"""The standard variables of OpenTelemetry are obeyed, or refused by name at the start."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.exporter.otlp.proto.http import metric_exporter as metrics_over_http
from opentelemetry.exporter.otlp.proto.http import trace_exporter as spans_over_http
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from specmesh.serving.telemetry.exporters import (
    InvalidTelemetry,
    check_environment,
    metric_exporter,
    span_exporter,
)

if TYPE_CHECKING:
    from tests.serving.process.conftest import Connect, Launch

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}
OVER_GRPC = (OTLPSpanExporter, OTLPMetricExporter)
OVER_HTTP = (spans_over_http.OTLPSpanExporter, metrics_over_http.OTLPMetricExporter)
NONE = (type(None), type(None))


def chosen(monkeypatch, environment):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return span_exporter(), metric_exporter()


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, NONE),
        (ENDPOINT, OVER_GRPC),
        ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_METRICS_EXPORTER": "otlp"}, OVER_GRPC),
        (ENDPOINT | {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, OVER_HTTP),
        (
            ENDPOINT | {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf"},
            (OVER_HTTP[0], OVER_GRPC[1]),
        ),
        (ENDPOINT | {"OTEL_TRACES_EXPORTER": "none"}, (NONE[0], OVER_GRPC[1])),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://127.0.0.1:1"}, (NONE[0], OVER_GRPC[1])),
        (ENDPOINT | {"OTEL_SDK_DISABLED": "true"}, NONE),
    ],
)
def test_the_environment_chooses_the_exporters(monkeypatch, environment, expected):
    found = chosen(monkeypatch, environment)
    try:
        assert tuple(map(type, found)) == expected
    finally:
        for each in found:
            if each is not None:
                each.shutdown()


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({"OTEL_TRACES_EXPORTER": "console"}, "OTEL_TRACES_EXPORTER=console: it must be otlp"),
        ({"OTEL_METRICS_EXPORTER": "prometheus"}, "--metrics-address serves Prometheus"),
        (
            ENDPOINT | {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"},
            "OTEL_EXPORTER_OTLP_PROTOCOL=http/json: it must be grpc or http/protobuf",
        ),
    ],
)
def test_what_there_is_not_is_refused_by_name(monkeypatch, environment, told):
    with pytest.raises(InvalidTelemetry, match=told):
        chosen(monkeypatch, environment)


@pytest.mark.parametrize(
    ("variable", "protocol", "wrong", "right"),
    [
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "grpc", "x", "2.5"),
        ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "grpc", "", "1"),
        ("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", "http/protobuf", "-1", "3"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "grpc", "zstd", "gzip"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "http/protobuf", "zstd", "deflate"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "grpc", "0", "1000"),
        ("OTEL_METRIC_EXPORT_TIMEOUT", "grpc", "nan", "1000"),
        ("OTEL_METRICS_EXEMPLAR_FILTER", "grpc", "ALWAYS_OFF", "always_off"),
        ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "grpc", "-1", "0"),
        ("OTEL_BSP_SCHEDULE_DELAY", "grpc", "1.5", "20"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "grpc", "511", "512"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "grpc", "511", " "),
        ("OTEL_TRACES_SAMPLER", "grpc", "sometimes", "Always_On"),
        ("OTEL_TRACES_SAMPLER", "grpc", "sometimes", ""),
    ],
)
def test_a_wrong_value_is_refused_by_name(monkeypatch, variable, protocol, wrong, right):
    for name, value in (ENDPOINT | {"OTEL_EXPORTER_OTLP_PROTOCOL": protocol}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv(variable, right)
    check_environment()
    monkeypatch.setenv(variable, wrong)
    with pytest.raises(InvalidTelemetry, match=f"^{variable}={wrong}: it must be "):
        check_environment()
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    check_environment()


@pytest.mark.parametrize(
    ("variable", "protocol", "wrong", "right"),
    [
        ("HEADERS", "grpc", "Authorization: Bearer SECRET", "Authorization=Bearer SECRET"),
        ("TRACES_HEADERS", "http/protobuf", "a=1,SECRET", "a=1, b = c%20=d,"),
        ("METRICS_HEADERS", "grpc", 'key="SECRET"', "key="),
        ("ENDPOINT", "grpc", "http://user:SECRET@127.0.0.1:1", "127.0.0.1:1"),
        ("ENDPOINT", "http/protobuf", "127.0.0.1:4318", "http://user:SECRET@127.0.0.1:4318"),
        ("TRACES_ENDPOINT", "http/protobuf", "http://SECRET:x/", "https://[::1]/v1/traces"),
    ],
)
def test_a_wrong_value_that_may_have_a_secret_is_not_repeated(
    monkeypatch, variable, protocol, wrong, right
):
    for name, value in (ENDPOINT | {"OTEL_EXPORTER_OTLP_PROTOCOL": protocol}).items():
        monkeypatch.setenv(name, value)
    name = f"OTEL_EXPORTER_OTLP_{variable}"
    monkeypatch.setenv(name, right)
    check_environment()
    monkeypatch.setenv(name, wrong)
    with pytest.raises(InvalidTelemetry, match=f"^{name}: it must be ") as refused:
        check_environment()
    assert "SECRET" not in str(refused.value)


def test_a_share_is_asked_of_samplers_that_take_one(monkeypatch):
    chosen = ENDPOINT | {"OTEL_TRACES_SAMPLER_ARG": "2"}
    for name, value in chosen.items():
        monkeypatch.setenv(name, value)
    check_environment()
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "traceidratio")
    with pytest.raises(InvalidTelemetry, match="OTEL_TRACES_SAMPLER_ARG=2: it must be a share"):
        check_environment()


@pytest.mark.parametrize(
    "wrong",
    [
        {"OTEL_TRACES_EXPORTER": "zipkin"},
        ENDPOINT | {"OTEL_EXPORTER_OTLP_TIMEOUT": "x"},
        ENDPOINT | {"OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "-1"},
    ],
)
async def test_a_process_whose_environment_is_wrong_says_so_in_one_line(launch: Launch, wrong):
    process = await launch(env=wrong, until="cannot start")
    *_, (variable, value) = wrong.items()
    assert process.log[-1]["reason"].startswith(f"{variable}={value}: it must be")
    assert await process.ended() == 1


async def test_spans_arrive_over_http(launch: Launch, connect: Connect):
    arrived: asyncio.Future[tuple[str, bytes]] = asyncio.get_running_loop().create_future()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        (length,) = (
            int(line.partition(":")[2])
            for line in head.lower().splitlines()
            if line.startswith("content-length:")
        )
        body = await reader.readexactly(length)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()
        if head.startswith("POST /v1/traces ") and not arrived.done():
            arrived.set_result((head, body))

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        environment = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_METRICS_EXPORTER": "none",
            "OTEL_BSP_SCHEDULE_DELAY": "20",
        }
        process = await launch(env=environment)
        await connect(process.address).verify()
        async with asyncio.timeout(20):
            _, body = await arrived
    (part,) = ExportTraceServiceRequest.FromString(body).resource_spans
    assert [span.name for scope in part.scope_spans for span in scope.spans]
