"""The collector process: ``specmesh serve traces``."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn

from specmesh.serving.end_signals import end_signals
from specmesh.serving.identity.certificates import TlsFiles
from specmesh.serving.identity.ssl_context import RenewedContext
from specmesh.serving.identity.watched import UnusableFile
from specmesh.serving.process.command_line import parse
from specmesh.serving.process.logging import configure
from specmesh.serving.process.server_loop import run
from specmesh.traces.collector import otlp_grpc
from specmesh.traces.collector.buffer import BufferLimits, TraceBuffer
from specmesh.traces.collector.otlp_grpc import Take
from specmesh.traces.collector.otlp_http import make_app
from specmesh.traces.collector.settings import CollectorSettings
from specmesh.traces.collector.storing import Storing
from specmesh.traces.store.schema import StoreError
from specmesh.traces.store.writer import StoreWriter

log = logging.getLogger(__name__)

_GRACE_S = 2
"""Longest time that open requests may continue after SIGTERM."""


async def collect(settings: CollectorSettings) -> int:
    """Receive and store spans until one of ``end_signals`` comes, and return the exit status."""
    stop = asyncio.Event()
    for number in end_signals():
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        writer = StoreWriter(settings.store, settings.limits())
        buffer = TraceBuffer(settings.sampler(), BufferLimits(settle_s=settings.settle_seconds))
        storing = Storing(buffer, writer)
        async with _receiving(settings, storing.take):
            writing = asyncio.create_task(storing.run())
            # Without it, spans would be received and never stored.
            writing.add_done_callback(lambda _: stop.set())
            await stop.wait()
    except (StoreError, OSError, UnusableFile) as error:
        log.error("cannot start", extra={"reason": str(error)})
        return 1
    writing.cancel()
    try:
        await writing
    except asyncio.CancelledError:
        writer.close()
    except Exception:
        log.exception("cannot store traces any more")
        return 1
    log.info("stopped")
    return 0


@asynccontextmanager
async def _receiving(settings: CollectorSettings, take: Take) -> AsyncIterator[None]:
    """Run both receivers while the block runs. Raises OSError if one can't listen, and UnusableFile
    for bad TLS files."""
    with socket.create_server((settings.host, settings.http_port)) as listener:
        address = f"{settings.host}:{settings.grpc_port}"
        # Otherwise a response's body waits up to 40 ms until its client acknowledges the headers.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        server, port = await otlp_grpc.start(take, address, settings.tls)
        config = uvicorn.Config(
            make_app(take),
            http="h11",  # httptools does not limit the size of headers
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=_GRACE_S,
            ssl_context_factory=_context(settings.tls),
        )
        web = _WebServer(config)
        serving = asyncio.create_task(web.serve([listener]))
        log.info(
            "serving",
            extra={
                "address": f"{settings.host}:{port}",
                "http": f"{settings.host}:{listener.getsockname()[1]}",
                "store": str(settings.store),
            },
        )
        try:
            yield
        finally:
            web.should_exit = True
            await asyncio.gather(server.stop(_GRACE_S), serving)


def _context(tls: TlsFiles | None) -> Callable[..., ssl.SSLContext] | None:
    if tls is None:
        return None
    context = RenewedContext(tls, require_clients=tls.ca is not None)
    return lambda *_: context


class _WebServer(uvicorn.Server):
    """A server that leaves signals to the process."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none, since the process has its own handlers."""
        yield


if __name__ == "__main__":
    given = parse(CollectorSettings, sys.argv[1:], "specmesh serve traces")
    configure(given.log_level, "traces", "traces")
    sys.exit(run(collect(given)))
