"""Health is told to whoever asks or watches, and waits for nobody."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.serving.test_refusals import NARROW

from specmesh.serving.errors import error_info
from specmesh.serving.rpc.health import LIVENESS, READINESS, Health

PATIENCE_S = 20
STALL_S = 0.2
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING

Connect = Callable[..., health_pb2_grpc.HealthStub]


@pytest.fixture
def health() -> Health:
    return Health(stall_s=STALL_S)


@pytest.fixture
async def connect(health: Health) -> AsyncIterator[Connect]:
    server = grpc.aio.server()
    health.add_to(server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(server.stop, None)
        channels = []

        def connected(*options: tuple[str, int]) -> health_pb2_grpc.HealthStub:
            own = ("grpc.use_local_subchannel_pool", 1)
            channels.append(grpc.aio.insecure_channel(f"127.0.0.1:{port}", (own, *options)))
            stack.push_async_callback(channels[-1].close)
            return health_pb2_grpc.HealthStub(channels[-1])

        yield connected


def watch(stub: health_pb2_grpc.HealthStub, name: str = READINESS) -> Any:
    return stub.Watch(health_pb2.HealthCheckRequest(service=name), timeout=PATIENCE_S)


async def test_a_watcher_is_told_each_change_of_what_it_watches(health: Health, connect: Connect):
    calls = watch(connect())
    assert (await calls.read()).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
    health.alive()
    assert (await calls.read()).status == NOT_SERVING
    health.started()
    health.ready(can_answer=True)
    assert (await calls.read()).status == SERVING
    health.ready(can_answer=False)
    assert (await calls.read()).status == NOT_SERVING


async def test_a_service_that_is_not_there_is_not_found(health: Health, connect: Connect):
    health.alive()
    stub = connect()
    await stub.Check(health_pb2.HealthCheckRequest(service=LIVENESS))
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await stub.Check(health_pb2.HealthCheckRequest(service="nobody"))
    assert raised.value.code() is grpc.StatusCode.NOT_FOUND


async def test_a_watcher_that_does_not_read_is_cut_off_and_delays_no_other(
    health: Health, connect: Connect
):
    health.alive()
    stalled, reading = watch(connect(*NARROW)), watch(connect())
    await stalled.initial_metadata()
    for can_answer, status in ((False, NOT_SERVING), (True, SERVING), (False, NOT_SERVING)):
        health.ready(can_answer)
        assert (await reading.read()).status == status
    await asyncio.sleep(2 * STALL_S)

    async def rest() -> None:
        while await stalled.read() is not grpc.aio.EOF:
            pass

    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await rest()
    info = error_info(raised.value)
    assert info is not None
    assert info.reason == "READER_STALLED"
