"""A server inside the process of its tests."""

from __future__ import annotations

import asyncio
import signal
import sys

import grpc
import pytest
from tests.servers import running_server

from specmesh.mesh.v1alpha1 import verifier_pb2, verifier_pb2_grpc
from specmesh.serving.process import server
from specmesh.serving.settings import ServerSettings
from specmesh.serving.startup import CannotStart


class Service(verifier_pb2_grpc.VerifierServiceServicer):
    role = "verifier"
    names = ("specmesh.mesh.v1alpha1.VerifierService",)

    def __init__(self) -> None:
        self.life: list[str] = []
        self.arrived = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.release = asyncio.Event()

    async def start(self) -> None:
        self.life.append("start")

    def register(self, server: grpc.aio.Server) -> None:
        self.life.append("register")
        verifier_pb2_grpc.add_VerifierServiceServicer_to_server(self, server)

    async def stop(self) -> None:
        self.life.append("stop")

    async def Verify(self, request, context):  # noqa: N802
        self.arrived.set()
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        self.life.append("answered")
        return verifier_pb2.VerifyResponse(next_token_id=3)


def verify(channel: grpc.aio.Channel) -> grpc.aio.UnaryUnaryCall:
    return verifier_pb2_grpc.VerifierServiceStub(channel).Verify(verifier_pb2.VerifyRequest())


async def test_service_starts_before_calls_and_stops_after_the_last():
    service = Service()
    async with running_server(ServerSettings(), service) as address:
        channel = grpc.aio.insecure_channel(address)
        call = verify(channel)
        await service.arrived.wait()
        asyncio.get_running_loop().call_later(0.05, service.release.set)
    assert (await call).next_token_id == 3
    await channel.close()
    assert service.life == ["start", "register", "answered", "stop"]


async def test_error_in_the_body_breaks_calls_off():
    service = Service()
    calls = []

    async def failing() -> None:
        async with running_server(ServerSettings(), service) as address:
            channel = grpc.aio.insecure_channel(address)
            calls.append((channel, verify(channel)))
            await service.arrived.wait()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await failing()
    channel, call = calls[0]
    assert await call.code() is grpc.StatusCode.UNAVAILABLE
    await channel.close()
    assert service.life == ["start", "register", "stop"]


CALLS = """
import sys, grpc
channel = grpc.insecure_channel(sys.argv[1])
channel.unary_unary(sys.argv[2])(b"")
"""


async def test_a_client_that_is_stopped_frees_its_calls(monkeypatch):
    """As a gateway that is frozen: its kernel still takes whatever is sent."""
    monkeypatch.setattr(server, "_KEEPALIVE_MS", 1000)
    monkeypatch.setattr(server, "_KEEPALIVE_TIMEOUT_MS", 500)
    service = Service()
    async with running_server(ServerSettings(), service) as address:
        method = f"/{service.names[0]}/Verify"
        client = await asyncio.create_subprocess_exec(sys.executable, "-c", CALLS, address, method)
        try:
            await asyncio.wait_for(service.arrived.wait(), 30)
            client.send_signal(signal.SIGSTOP)
            await asyncio.wait_for(service.cancelled.wait(), 15)
        finally:
            client.kill()
            await client.wait()


async def test_servers_run_side_by_side_but_not_on_one_port():
    async with (
        running_server(ServerSettings(), Service()) as first,
        running_server(ServerSettings(), Service()) as second,
    ):
        assert first != second
        port = int(first.rpartition(":")[2])
        with pytest.raises(CannotStart, match=str(port)):
            async with running_server(ServerSettings(port=port), Service()):
                pass


async def test_ipv6_address_is_bracketed():
    async with running_server(ServerSettings(host="::1"), Service()) as address:
        assert address.startswith("[::1]:")
        async with grpc.aio.insecure_channel(address) as channel:
            await asyncio.wait_for(channel.channel_ready(), 10)


async def test_a_connection_that_sends_nothing_is_closed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(server, "_HANDSHAKE_MS", 200)
    async with running_server(ServerSettings(), Service()) as address:
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        async with asyncio.timeout(20):
            while await reader.read(1 << 16):  # the server's own settings
                pass
        writer.close()
