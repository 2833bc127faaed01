"""The collector process: ``specmesh serve traces``."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import uvicorn

from specmesh.serving.command_line import parse
from specmesh.serving.logging import configure
from specmesh.traces.collector import otlp_grpc
from specmesh.traces.collector.buffer import BufferLimits, TraceBuffer
from specmesh.traces.collector.otlp_http import make_app
from specmesh.traces.collector.settings import CollectorSettings
from specmesh.traces.collector.storing import Storing
from specmesh.traces.store.schema import StoreError
from specmesh.traces.store.writer import StoreWriter

log = logging.getLogger(__name__)

_NICENESS = 10
"""The collector gives way to the mesh that it looks at."""


async def collect(settings: CollectorSettings) -> int:
    """Receive and store until SIGTERM or SIGINT; returns the exit status."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        writer = StoreWriter(settings.store, settings.limits())
    except StoreError as error:
        log.error("cannot start", extra={"reason": str(error)})
        return 1
    buffer = TraceBuffer(settings.sampler(), BufferLimits(settle_s=settings.settle_seconds))
    storing = Storing(buffer, writer)
    try:
        server, port = await otlp_grpc.start(storing.take, f"{settings.host}:{settings.grpc_port}")
        listener = socket.create_server((settings.host, settings.http_port))
    except OSError as error:
        log.error("cannot start", extra={"reason": str(error)})
        return 1
    web = _WebServer(uvicorn.Config(make_app(storing.take), log_config=None, access_log=False))
    serving = asyncio.create_task(web.serve([listener]))
    writing = asyncio.create_task(storing.run())
    log.info(
        "serving",
        extra={
            "address": f"{settings.host}:{port}",
            "http": f"{settings.host}:{listener.getsockname()[1]}",
            "store": str(settings.store),
        },
    )
    await stop.wait()
    web.should_exit = True
    await asyncio.gather(server.stop(grace=1), serving)
    writing.cancel()
    with suppress(asyncio.CancelledError):
        await writing
    writer.close()
    log.info("stopped")
    return 0


class _WebServer(uvicorn.Server):
    """Leaves signals to the process."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Not here."""
        yield


if __name__ == "__main__":
    given = parse(CollectorSettings, sys.argv[1:], "specmesh serve traces")
    configure(given.log_level, "traces", "traces")
    os.nice(_NICENESS)
    sys.exit(asyncio.run(collect(given)))
