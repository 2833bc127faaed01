"""Which of its states a process says to probes while those that it needs come and go."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.e2e.processes import Process
from tests.ports import free_port
from tests.scraping import scrape

from specmesh.client import AsyncClient, Unavailable
from specmesh.serving.rpc.health import LIVENESS, READINESS, STARTUP

PATIENCE_S = 30
PROBED = ("--probe-address", "0")


async def told(process: Process) -> dict[str, bool]:
    """The states of a process now."""
    address = (await asyncio.to_thread(process.wait_event, "probes"))["address"]
    async with grpc.aio.insecure_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        asked = {name: health_pb2.HealthCheckRequest(service=name) for name in ALL}
        answers = {
            name: await stub.Check(request, timeout=PATIENCE_S) for name, request in asked.items()
        }
    return {name: answer.status == answer.SERVING for name, answer in answers.items()}


async def becomes(process: Process, *, ready: bool) -> None:
    """Return once a process is ready, or isn't."""
    address = (await asyncio.to_thread(process.wait_event, "probes"))["address"]
    request = health_pb2.HealthCheckRequest(service=READINESS)
    async with grpc.aio.insecure_channel(address) as channel:
        async for answer in health_pb2_grpc.HealthStub(channel).Watch(request, timeout=PATIENCE_S):
            if (answer.status == answer.SERVING) == ready:
                return


ALL = {STARTUP: True, LIVENESS: True, READINESS: True}
ALONE = ALL | {READINESS: False}


async def test_without_verifiers_an_orchestrator_lives_and_is_not_ready(processes):
    port = str(free_port())
    verifiers = ("--verifiers", f"127.0.0.1:{port}")
    orchestrator = processes.service("orchestrator", *verifiers, *PROBED, "--metrics-address", "0")
    address = (await asyncio.to_thread(orchestrator.wait_event, "starting"))["address"]
    gateway = processes.service("gateway", "--orchestrators", address, *PROBED)
    await asyncio.to_thread(gateway.wait_event, "serving")
    assert [await told(each) for each in (orchestrator, gateway)] == [ALONE] * 2
    async with AsyncClient(address, max_retries=0) as client:
        with pytest.raises(Unavailable) as refused:
            await client.generate("x")
        assert refused.value.reason == "NO_VERIFIER"
        assert "none of 1 verifiers is usable" in str(refused.value)
    metrics = (await asyncio.to_thread(orchestrator.wait_event, "metrics"))["address"]
    scraped = await scrape(metrics)
    reported = {"rpc_response_status_code": "UNAVAILABLE", "specmesh_reason": "NO_VERIFIER"}
    assert scraped.value("specmesh_requests_total", **reported) == 1
    method = "specmesh.v1.GenerationService/Generate"
    assert scraped.value("rpc_server_call_duration_seconds_count", rpc_method=method) == 1
    line = await asyncio.to_thread(orchestrator.wait_event, "request")
    assert (line["method"], line["reason"]) == ("Generate", "NO_VERIFIER")
    replicas = scraped.all("specmesh_replicas", specmesh_role="verifier")
    assert {each.labels["specmesh_state"]: each.value for each in replicas} == {
        "ready": 0,
        "down": 1,
        "refused": 0,
        "ejected": 0,
    }

    verifier = processes.service("verifier", "--backend", "simulated", "--port", port, *PROBED)
    for each in (verifier, orchestrator, gateway):
        await becomes(each, ready=True)
        assert await told(each) == ALL
    verifier.kill()
    await becomes(orchestrator, ready=False)
    assert await told(orchestrator) == ALONE
