"""A peer that takes keepalive pings for an attack is left in peace."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from specmesh.orchestrator.replicas.transport import connection
from specmesh.orchestrator.replicas.transport.connection import PlainChannels
from specmesh.orchestrator.replicas.transport.peer import Peer

EAGER = tuple(
    (name, 200 if name == "grpc.keepalive_time_ms" else value)
    for name, value in connection.CHANNEL_OPTIONS
)


class RecordingChannels(PlainChannels):
    """Remembers which channels were calm."""

    def __init__(self) -> None:
        self.were_calm: list[bool] = []

    def open(self, address: str, *, calm: bool = False) -> grpc.aio.Channel:
        self.were_calm.append(calm)
        return super().open(address, calm=calm)


@pytest.fixture
async def plain_server():
    """gRPC as it comes: it cuts off who pings more than every five minutes."""
    server = grpc.aio.server()
    servicer = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    await servicer.set("", health_pb2.HealthCheckResponse.SERVING)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(None)


async def test_a_peer_that_refuses_pings_is_pinged_less(plain_server, monkeypatch, caplog):
    monkeypatch.setattr(connection, "CHANNEL_OPTIONS", EAGER)
    channels = RecordingChannels()
    peer = Peer(plain_server, "", None, channels)
    try:
        async with asyncio.timeout(30):
            while channels.were_calm != [False, True] or not peer.ready:
                peer.changed.clear()
                await peer.changed.wait()
    finally:
        await peer.close()
    (told,) = [each for each in caplog.records if "keepalive" in each.message]
    assert "min_ping_interval_without_data_ms" in told.remedy
