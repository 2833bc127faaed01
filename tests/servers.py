"""A server inside the process of its tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from specmesh.serving.process.server import Server, Service
from specmesh.serving.settings import ServerSettings


@asynccontextmanager
async def running_server(settings: ServerSettings, service: Service) -> AsyncIterator[str]:
    """Runs as a process would, without signals, logs or telemetry; gives its address."""
    server = Server(settings, service)
    try:
        address = await server.listen()
        await server.start()
        yield address
        await server.leave()
        await server.drain()
    finally:
        await server.stop()
