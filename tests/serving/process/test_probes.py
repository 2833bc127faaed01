"""What probes are told, on a port of their own, over the life of a process."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from specmesh.serving.certs.folder import bearers, make
from specmesh.serving.rpc.health import LIVENESS, PROBES, READINESS, STARTUP

if TYPE_CHECKING:
    from pathlib import Path

    from tests.serving.process.conftest import Calls, Connect, Launch

SERVICE = "specmesh.mesh.v1alpha1.VerifierService"
ON_A_PORT = ("--probe-address", "0")
ALIVE_ALONE = {LIVENESS: True, STARTUP: False, READINESS: False}
ALL = dict.fromkeys(PROBES, True)
LEAVING = {LIVENESS: True, STARTUP: True, READINESS: False}


async def told(calls: Calls) -> dict[str, bool]:
    stub = health_pb2_grpc.HealthStub(calls.channel)
    serving = health_pb2.HealthCheckResponse.SERVING
    return {
        name: (await stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=10)).status
        == serving
        for name in PROBES
    }


async def test_probes_follow_a_process_from_its_start_to_its_end(launch: Launch, connect: Connect):
    flags = (*ON_A_PORT, "--start", "when-told", "--drain-delay-seconds", "0.3")
    process = await launch(*flags, until="probes")
    probes = connect(process.address)
    await process.logged("starting")
    calls = connect(process.address)
    for asked in (probes, calls):
        assert await told(asked) == ALIVE_ALONE
    process.go_on()
    await process.logged("serving")
    for asked in (probes, calls):
        assert await told(asked) == ALL
    call = calls.verify("wait")
    await process.logged("waiting")
    process.signal()
    await process.logged("leaving")
    assert await told(probes) == LEAVING
    await process.logged("draining")
    assert await told(probes) == LEAVING  # alive to the end: what drains must not be killed
    process.go_on()
    assert (await call).next_token_id == 7
    assert await process.ended() == 0


async def test_probes_need_no_certificate_and_find_health_alone(
    launch: Launch, connect: Connect, tmp_path: Path
):
    make(tmp_path, "test", bearers("test", (), ()), timedelta(days=1), force=False)
    cert, key = tmp_path / "verifier.pem", tmp_path / "verifier-key.pem"
    tls = ("--tls-ca", tmp_path / "ca.pem", "--tls-cert", cert, "--tls-key", key)
    process = await launch(*ON_A_PORT, *map(str, tls), until="probes")
    probes = connect(process.address)
    await process.logged("serving")
    assert await told(probes) == ALL
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await probes.verify()
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
    with pytest.raises(grpc.aio.AioRpcError) as unanswered:
        await told(connect(process.address))
    assert unanswered.value.code() is grpc.StatusCode.UNAVAILABLE  # the port of the calls


async def test_the_services_are_as_ready_as_the_process(launch: Launch, connect: Connect):
    probes = connect((await launch(*ON_A_PORT, until="probes")).address)
    stub = health_pb2_grpc.HealthStub(probes.channel)
    watch = stub.Watch(health_pb2.HealthCheckRequest(service=SERVICE), timeout=30)
    while (await watch.read()).status != health_pb2.HealthCheckResponse.SERVING:
        pass


async def test_a_probe_port_that_is_taken_is_named(launch: Launch):
    taken = (await launch(*ON_A_PORT, until="probes")).address
    second = await launch("--probe-address", taken, until="cannot start")
    assert second.log[-1]["reason"].startswith(
        f"cannot answer probes on {taken} (--probe-address): "
    )
    assert await second.ended() == 1
