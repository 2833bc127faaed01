"""Spans as they arrive at a real OTLP receiver."""

from __future__ import annotations

import socket
import time
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

if TYPE_CHECKING:
    from tests.serving.process.conftest import Calls, Collector, Connect, Launch, ServerProcess

VERIFY = "specmesh.mesh.v1alpha1.VerifierService/Verify"
DRAFT = "specmesh.mesh.v1alpha1.DrafterService/Draft"
TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
PARENT_ID = "b7ad6b7169203331"
SAMPLED = (("traceparent", f"00-{TRACE_ID}-{PARENT_ID}-01"),)
UNSAMPLED = (("traceparent", f"00-{TRACE_ID}-{PARENT_ID}-00"),)


def attributes(span: Span) -> dict[str, Any]:
    found = {}
    for item in span.attributes:
        found[item.key] = getattr(item.value, item.value.WhichOneof("value"))
    return found


@pytest.fixture
async def process(launch: Launch, collector: Collector) -> ServerProcess:
    return await launch("--name", "verifier-7", env=collector.env)


@pytest.fixture
async def calls(process: ServerProcess, connect: Connect) -> Calls:
    return connect(process.address)


async def test_call_continues_the_callers_trace(calls: Calls, collector: Collector):
    await calls.verify("annotate", metadata=SAMPLED)
    span = await collector.received(name=VERIFY)
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE_ID, PARENT_ID)
    assert span.kind == Span.SPAN_KIND_SERVER
    assert span.status.code == Status.STATUS_CODE_UNSET
    assert attributes(span) == {
        "rpc.system.name": "grpc",
        "rpc.method": VERIFY,
        "rpc.response.status_code": "OK",
        "specmesh.queue_ms": 1.5,
    }
    assert collector.resources[0]["service.name"] == "specmesh-verifier"
    assert collector.resources[0]["service.instance.id"] == "verifier-7"
    assert collector.resources[0]["service.version"] == version("specmesh")


async def test_spans_of_two_processes_hang_together(
    launch: Launch, calls: Calls, collector: Collector
):
    second = await launch(env=collector.env)
    await calls.verify(f"relay {second.address} annotate")
    client = await collector.received(kind=Span.SPAN_KIND_CLIENT)
    first = await collector.received(span_id=client.parent_span_id)
    last = await collector.received(parent_span_id=client.span_id)
    assert first.trace_id == client.trace_id == last.trace_id
    assert (first.kind, last.kind) == (Span.SPAN_KIND_SERVER, Span.SPAN_KIND_SERVER)
    host, _, port = second.address.partition(":")
    assert attributes(client) == {
        "rpc.system.name": "grpc",
        "rpc.method": VERIFY,
        "rpc.response.status_code": "OK",
        "server.address": host,
        "server.port": int(port),
        "specmesh.round": 3,
    }


async def test_failed_outgoing_call_is_an_error_with_its_code(
    launch: Launch, calls: Calls, collector: Collector
):
    second = await launch(env=collector.env)
    with pytest.raises(grpc.aio.AioRpcError):
        await calls.verify(f"relay {second.address} precondition")
    client = await collector.received(kind=Span.SPAN_KIND_CLIENT)
    assert client.status.code == Status.STATUS_CODE_ERROR
    assert attributes(client)["rpc.response.status_code"] == "FAILED_PRECONDITION"
    assert attributes(client)["error.type"] == "FAILED_PRECONDITION"


async def test_cancelled_relay_cancels_onward_and_none_of_it_is_an_error(
    launch: Launch, calls: Calls, collector: Collector
):
    second = await launch(env=collector.env)
    call = calls.verify(f"relay {second.address} wait")
    await second.logged("waiting")
    call.cancel()
    await second.logged("cancelled")
    client = await collector.received(kind=Span.SPAN_KIND_CLIENT)
    first = await collector.received(span_id=client.parent_span_id)
    last = await collector.received(parent_span_id=client.span_id)
    for span in (first, client, last):
        assert attributes(span)["specmesh.cancelled"] is True
        assert span.status.code == Status.STATUS_CODE_UNSET


@pytest.mark.parametrize("wish", ["wait", "wait-first"])
async def test_span_of_a_cancelled_stream_is_ended_without_error(
    process: ServerProcess, calls: Calls, collector: Collector, wish: str
):
    stream = calls.draft(wish)
    await process.logged("waiting")
    stream.cancel()
    span = await collector.received(name=DRAFT)
    assert attributes(span)["specmesh.cancelled"] is True
    assert "error.type" not in attributes(span)
    assert span.status.code == Status.STATUS_CODE_UNSET


async def test_span_of_a_call_past_its_deadline_is_ended(
    process: ServerProcess, calls: Calls, collector: Collector
):
    call = calls.verify("wait", timeout=1)
    await process.logged("waiting")
    with pytest.raises(grpc.aio.AioRpcError):
        await call
    span = await collector.received(name=VERIFY)
    assert attributes(span)["specmesh.cancelled"] is True


@pytest.mark.parametrize(
    ("wish", "code", "status"),
    [
        ("precondition", "FAILED_PRECONDITION", Status.STATUS_CODE_UNSET),
        ("invalid", "INVALID_ARGUMENT", Status.STATUS_CODE_UNSET),
        ("unavailable", "UNAVAILABLE", Status.STATUS_CODE_ERROR),
        ("unexpected", "INTERNAL", Status.STATUS_CODE_ERROR),
    ],
)
async def test_only_the_servers_own_failures_are_errors_of_its_span(
    calls: Calls, collector: Collector, wish: str, code: str, status: int
):
    for call, name in ((calls.verify(wish), VERIFY), (calls.draft(wish), DRAFT)):
        with pytest.raises(grpc.aio.AioRpcError):
            [message async for message in call] if name == DRAFT else await call
        span = await collector.received(name=name)
        assert attributes(span)["rpc.response.status_code"] == code
        assert span.status.code == status
        assert ("error.type" in attributes(span)) == (status == Status.STATUS_CODE_ERROR)


async def test_every_started_call_ends_its_span(
    process: ServerProcess, calls: Calls, collector: Collector
):
    for number in range(30):
        stream = calls.draft()
        if number % 3 == 0:
            stream.cancel()
        elif number % 3 == 1:
            await stream.read()
            stream.cancel()
        else:
            assert [list(message.token_ids) async for message in stream] == [[1], [2]]
    process.signal()
    assert await process.ended() == 0
    closed = [line for line in process.log if line["event"] == "draft closed"]
    assert len(collector.spans) == len(closed) >= 20


async def test_health_is_not_traced(process: ServerProcess, calls: Calls, collector: Collector):
    stub = health_pb2_grpc.HealthStub(calls.channel)
    await stub.Check(health_pb2.HealthCheckRequest(), metadata=SAMPLED)
    await calls.verify()
    process.signal()
    assert await process.ended() == 0
    assert [span.name for span in collector.spans] == [VERIFY]


async def test_unsampled_caller_is_respected(
    process: ServerProcess, calls: Calls, collector: Collector
):
    await calls.verify(metadata=UNSAMPLED)
    process.signal()
    assert await process.ended() == 0
    assert collector.spans == []


async def test_log_lines_carry_the_ids_of_the_call(
    process: ServerProcess, calls: Calls, collector: Collector
):
    await calls.verify("describe", metadata=SAMPLED)
    line = await process.logged("described")
    span = await collector.received(name=VERIFY)
    assert (line["trace_id"], line["span_id"]) == (TRACE_ID, span.span_id.hex())


async def test_what_is_left_at_the_end_is_sent(
    launch: Launch, connect: Connect, collector: Collector
):
    process = await launch(env=collector.env | {"OTEL_BSP_SCHEDULE_DELAY": "3600000"})
    await connect(process.address).verify()
    assert collector.spans == []
    process.signal()
    assert await process.ended() == 0
    assert [span.name for span in collector.spans] == [VERIFY]
    assert "fake.calls" in collector.metrics


async def test_without_an_endpoint_nothing_is_set_up(launch: Launch, connect: Connect):
    process = await launch()
    await connect(process.address).verify("describe", metadata=SAMPLED)
    line = await process.logged("described")
    assert line["provider"] == "ProxyTracerProvider"
    assert not [name for name in line["threads"] if "Otel" in name]
    assert "trace_id" not in line


@pytest.mark.parametrize("silent", [True, False], ids=["hangs", "refuses"])
async def test_absent_collector_neither_harms_calls_nor_holds_up_the_end(
    launch: Launch, connect: Connect, silent: bool
):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = "{}:{}".format(*listener.getsockname())
        if not silent:
            listener.close()
        env = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{address}", "OTEL_BSP_SCHEDULE_DELAY": "20"}
        process = await launch(env=env)
        calls = connect(process.address)
        for _ in range(20):
            assert (await calls.verify()).next_token_id == 7
        process.signal()
        began = time.monotonic()
        assert await process.ended() == 0
    assert time.monotonic() - began < 8  # the exporter alone would take 10 s for each signal
    noise = [line["event"] for line in process.log if line["level"] in ("warning", "error")]
    assert len(noise) < 6, noise
