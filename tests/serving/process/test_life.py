"""From start to end of a server process."""

from __future__ import annotations

import asyncio
import signal
import time
from typing import TYPE_CHECKING

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from specmesh.serving.errors import error_info

if TYPE_CHECKING:
    from tests.serving.process.conftest import Calls, Connect, Launch

NAMES = ["", "specmesh.mesh.v1alpha1.VerifierService", "specmesh.mesh.v1alpha1.DrafterService"]
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


async def health(calls: Calls, name: str = "") -> int:
    stub = health_pb2_grpc.HealthStub(calls.channel)
    return (await stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=10)).status


async def goaway(calls: Calls) -> None:
    """Return once the server has told its client to close the connection. What is sent in the very
    moment before may end with CANCELLED, or hang until the server has ended."""
    async with asyncio.timeout(10):
        await calls.channel.wait_for_state_change(grpc.ChannelConnectivity.READY)


async def refusal(call: object) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await call
    info = error_info(raised.value)
    return raised.value.code(), info.reason if info else ""


async def test_health_says_serving_only_once_the_service_has_started(
    launch: Launch, connect: Connect
):
    process = await launch("--start", "when-told", until="starting")
    calls = connect(process.address)
    assert [await health(calls, name) for name in NAMES] == [NOT_SERVING] * 3
    assert await refusal(calls.verify()) == (grpc.StatusCode.UNAVAILABLE, "STARTING")
    process.go_on()
    await process.logged("serving")
    assert [await health(calls, name) for name in NAMES] == [SERVING] * 3
    assert (await calls.verify()).next_token_id == 7


async def test_health_of_an_unknown_service_is_not_found(launch: Launch, connect: Connect):
    process = await launch()
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await health(connect(process.address), "specmesh.v1.Nothing")
    assert raised.value.code() is grpc.StatusCode.NOT_FOUND


async def test_health_watcher_sees_every_turn_and_does_not_hold_up_the_end(
    launch: Launch, connect: Connect
):
    process = await launch("--start", "when-told", "--drain-seconds", "60", until="starting")
    stub = health_pb2_grpc.HealthStub(connect(process.address).channel)
    watch = stub.Watch(health_pb2.HealthCheckRequest(service=NAMES[1]), timeout=30)
    assert (await watch.read()).status == NOT_SERVING
    process.go_on()
    assert (await watch.read()).status == SERVING
    process.signal()
    assert (await watch.read()).status == NOT_SERVING
    assert await process.ended() == 0


async def test_reflection_lists_the_services(launch: Launch, connect: Connect):
    process = await launch()
    stub = reflection_pb2_grpc.ServerReflectionStub(connect(process.address).channel)
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    async for response in stub.ServerReflectionInfo(iter([request]), timeout=10):
        listed = {service.name for service in response.list_services_response.service}
    assert listed >= {*NAMES[1:], "grpc.health.v1.Health"}


async def test_unknown_method_is_unimplemented(launch: Launch, connect: Connect):
    process = await launch()
    call = connect(process.address).channel.unary_unary(
        "/specmesh.mesh.v1alpha1.VerifierService/Nothing"
    )
    assert (await refusal(call(b"")))[0] is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_drain_lets_a_running_call_end_and_takes_no_new_ones(
    launch: Launch, connect: Connect, number: signal.Signals
):
    process = await launch("--drain-seconds", "60")
    calls = connect(process.address)
    draft = calls.draft("wait")
    assert (await draft.read()).token_ids == [1]
    process.signal(number)
    await process.logged("draining")
    process.signal(signal.SIGHUP)  # Once more of the same, this asks for nothing else.
    await goaway(calls)
    for other in (calls, connect(process.address)):  # who was connected, and who connects now
        assert (await refusal(other.verify()))[0] is grpc.StatusCode.UNAVAILABLE
    process.go_on()
    assert (await draft.read()).token_ids == [2]
    assert await draft.read() is grpc.aio.EOF
    assert await draft.code() is grpc.StatusCode.OK
    assert await process.ended() == 0
    assert [line["event"] for line in process.log[-2:]] == ["service stopped", "stopped"]


async def test_a_client_is_told_to_look_for_another_server_while_its_calls_end(
    launch: Launch, connect: Connect
):
    process = await launch("--drain-seconds", "60")
    calls = connect(process.address)
    call = calls.verify("wait")
    await process.logged("waiting")
    assert calls.channel.get_state() is grpc.ChannelConnectivity.READY
    process.signal()
    await goaway(calls)
    process.go_on()
    assert (await call).next_token_id == 7
    assert await process.ended() == 0


async def test_a_process_that_leaves_answers_calls_until_it_drains(
    launch: Launch, connect: Connect
):
    process = await launch("--drain-delay-seconds", "0.5")
    calls = connect(process.address)
    process.signal()
    assert (await process.logged("leaving"))["seconds"] == 0.5
    for other in (calls, connect(process.address)):
        assert await health(other) == NOT_SERVING
        assert (await other.verify()).next_token_id == 7
    await process.logged("draining")
    assert await process.ended() == 0
    assert (await refusal(calls.verify()))[0] is grpc.StatusCode.UNAVAILABLE


async def test_who_is_not_called_yet_does_not_wait_for_others_to_notice(launch: Launch):
    process = await launch(
        "--start", "when-told", "--drain-delay-seconds", "3600", until="starting"
    )
    process.signal()
    assert await process.ended() == 0


async def test_a_second_signal_ends_the_wait_for_others_to_notice(launch: Launch):
    process = await launch("--drain-delay-seconds", "3600")
    process.signal()
    await process.logged("leaving")
    process.signal()
    assert await process.ended() == 1


async def test_a_connection_of_some_age_is_closed_once_its_calls_have_ended(
    launch: Launch, connect: Connect
):
    process = await launch("--max-connection-age-seconds", "0.2")
    calls = connect(process.address)
    call = calls.verify("wait")
    await process.logged("waiting")
    await goaway(calls)
    assert (await calls.verify()).next_token_id == 7  # over another connection
    process.go_on()
    assert (await call).next_token_id == 7


async def test_call_that_outlasts_the_drain_is_broken_off(launch: Launch, connect: Connect):
    process = await launch("--drain-seconds", "0.1")
    call = connect(process.address).verify("wait")
    await process.logged("waiting")
    process.signal()
    assert (await refusal(call))[0] is grpc.StatusCode.UNAVAILABLE
    assert await process.ended() == 0
    events = [line["event"] for line in process.log]
    assert events.index("calls broken off") < events.index("cancelled")


async def test_second_signal_breaks_off_at_once(launch: Launch, connect: Connect):
    process = await launch("--drain-seconds", "3600")
    call = connect(process.address).verify("wait")
    await process.logged("waiting")
    process.signal()
    await process.logged("draining")
    process.signal()
    assert (await refusal(call))[0] is grpc.StatusCode.UNAVAILABLE
    assert await process.ended() == 1
    assert process.log[-1] | {"exit_status": 1} == process.log[-1]


async def test_idle_process_ends_without_waiting(launch: Launch):
    process = await launch("--drain-seconds", "3600")
    began = time.monotonic()
    process.signal()
    assert await process.ended() == 0
    assert time.monotonic() - began < 10


async def test_signal_during_the_start_ends_it(launch: Launch):
    process = await launch("--start", "when-told", until="starting")
    process.signal()
    assert await process.ended() == 0
    assert "service stopped" in [line["event"] for line in process.log]


async def test_failed_start_is_logged_and_exits_1(launch: Launch):
    process = await launch("--start", "fails", until="failed")
    assert "RuntimeError: no such model" in process.log[-1]["exception"]
    assert await process.ended() == 1


async def test_refused_start_says_why_and_exits_1(launch: Launch):
    process = await launch("--start", "refused", until="cannot start")
    assert process.log[-1]["reason"] == "the folder holds no model"
    assert "exception" not in process.log[-1]
    assert await process.ended() == 1


async def test_port_in_use_is_named_and_exits_1(launch: Launch):
    port = (await launch()).address.rpartition(":")[2]
    second = await launch("--port", port, until="cannot start")
    assert second.log[-1]["reason"] == (
        f"cannot listen on 127.0.0.1:{port}; if the port is in use, --port takes another"
    )
    assert await second.ended() == 1


async def test_concurrent_calls_all_end_before_the_process_does(launch: Launch, connect: Connect):
    process = await launch()
    calls = connect(process.address)
    waiting = [asyncio.ensure_future(calls.verify("wait")) for _ in range(20)]
    for _ in waiting:
        await process.logged("waiting")
    process.signal()
    await process.logged("draining")
    for _ in waiting:
        process.go_on()
    assert [answer.next_token_id for answer in await asyncio.gather(*waiting)] == [7] * 20
    assert await process.ended() == 0
