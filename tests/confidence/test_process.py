"""The confidence process: its life and its metrics."""

from __future__ import annotations

import asyncio
import math
import signal
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from tests.confidence.test_service import CALL_S, asking, each
from tests.e2e.processes import Processes
from tests.serving.process.conftest import Collector, attributes, collector

from specmesh.mesh.v1alpha1 import confidence_pb2_grpc

if TYPE_CHECKING:
    from tests.e2e.processes import Process

__all__ = ["collector"]

METHOD = "specmesh.mesh.v1alpha1.ConfidenceService/Assess"


@pytest.fixture
def processes() -> Iterator[Processes]:
    with Processes() as own:
        yield own


async def start(processes: Processes, *flags: str, **environment: str) -> Process:
    process = processes.service("confidence", *flags, **environment)
    await asyncio.to_thread(lambda: process.address)
    return process


def connect(process: Process) -> grpc.aio.Channel:
    options = [("grpc.use_local_subchannel_pool", 1)]
    return grpc.aio.insecure_channel(process.address, options=options)


async def assess(channel: grpc.aio.Channel, *probabilities: float, **fields: Any) -> Any:
    stub = confidence_pb2_grpc.ConfidenceServiceStub(channel)
    request = asking(*probabilities, **fields)
    return [response async for response in stub.Assess(request, timeout=CALL_S)][-1]


async def test_health_and_reflection_name_the_service(processes):
    process = await start(processes)
    async with connect(process) as channel:
        check = health_pb2_grpc.HealthStub(channel).Check
        for name in ("", "specmesh.mesh.v1alpha1.ConfidenceService"):
            response = await check(health_pb2.HealthCheckRequest(service=name), timeout=CALL_S)
            assert response.status == health_pb2.HealthCheckResponse.SERVING
        reflect = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        async for response in reflect(iter([request]), timeout=CALL_S):
            listed = {service.name for service in response.list_services_response.service}
    assert "specmesh.mesh.v1alpha1.ConfidenceService" in listed


async def test_drain_releases_who_waits_and_refuses_who_comes(processes):
    process = await start(processes, "--window-ms", "100", "--drain-seconds", "60")
    async with connect(process) as channel:
        stub = confidence_pb2_grpc.ConfidenceServiceStub(channel)
        idle = stub.AssessEach(timeout=CALL_S)
        await idle.write(each(asking(0.9, session_id="busy")))
        assert (await idle.read()).response.HasField("assessment")
        assert (await idle.read()).last
        waiting = stub.Assess(asking(0.4), timeout=CALL_S)
        assert (await waiting.read()).HasField("assessment")
        process.send(signal.SIGTERM)
        await asyncio.to_thread(process.wait_event, "draining")
        await channel.wait_for_state_change(grpc.ChannelConnectivity.READY)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await assess(channel, 0.4, session_id="late")
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        assert (await waiting.read()).release.batch_size == 1
        assert await waiting.read() is grpc.aio.EOF
        began = time.monotonic()
        assert await asyncio.to_thread(process.wait_exit) == 0
        assert time.monotonic() - began < 10


async def test_a_wrong_setting_exits_2_and_names_it(processes):
    process = processes.service("confidence", "--follow-load", "0.5,0.1")
    assert await asyncio.to_thread(process.wait_exit) == 2
    assert "--follow-load (SPECMESH_CONFIDENCE__FOLLOW_LOAD)" in process.output


async def test_settings_come_from_the_environment_too(processes):
    process = await start(processes, SPECMESH_CONFIDENCE__THRESHOLD="-inf")
    request = asking(1e-6)
    request.ClearField("options")
    async with connect(process) as channel:
        stub = confidence_pb2_grpc.ConfidenceServiceStub(channel)
        response = await stub.Assess(request, timeout=CALL_S).read()
    assert response.assessment.decisions[0].keep
    assert response.assessment.threshold == -math.inf


async def test_a_request_has_a_span_that_says_what_was_decided(processes, collector: Collector):
    process = await start(processes, **collector.env, OTEL_METRIC_EXPORT_INTERVAL="50")
    async with connect(process) as channel:
        await assess(channel, 0.9, 0.4, 0.3, 0.9)
    span = await collector.received(name=METHOD)
    said = attributes(span)
    assert said["specmesh.filter.kept"] == 1
    assert said["specmesh.filter.escalated"] == 2
    assert said["specmesh.filter.threshold"] == pytest.approx(math.log(0.5))
    assert said["specmesh.filter.batch_size"] == 1
    process.send(signal.SIGTERM)
    await asyncio.to_thread(process.wait_exit)
    assert collector.metrics >= {
        "specmesh.filter.tokens",
        "specmesh.filter.assessed",
        "specmesh.filter.threshold",
        "specmesh.filter.batch.size",
        "specmesh.filter.wait.duration",
    }
