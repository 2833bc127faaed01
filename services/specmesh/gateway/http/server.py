"""The life cycle of the HTTP server, on uvicorn: listen, serve, drain, stop."""

from __future__ import annotations

import asyncio
import math
import socket
import ssl
from collections.abc import Callable

import uvicorn
from starlette.types import ASGIApp

from specmesh.gateway.http.connections import Connections
from specmesh.gateway.http.http_connection import HEAD_SECONDS, HttpConnection
from specmesh.gateway.http.leaving import Leaving
from specmesh.gateway.mesh import KnownOrchestrators
from specmesh.gateway.settings import GatewaySettings
from specmesh.serving.identity.plaintext import check_plaintext
from specmesh.serving.identity.ssl_context import RenewedContext
from specmesh.serving.identity.watched import UnusableFile
from specmesh.serving.process.resources import give_memory_back, report_lack_of_descriptors
from specmesh.serving.rpc.health import Health
from specmesh.serving.startup import CannotStart, cannot_listen

KEEP_ALIVE_SECONDS = 75
"""The time that an idle connection is kept: longer than load balancers keep theirs, so that none
sends a request into a connection that is being closed."""
BREAK_OFF_SECONDS = 1
"""The time in which clients receive the error that ends what is broken off."""
LOOK_SECONDS = 1.0
"""The interval at which a gateway with a probe port checks its orchestrators."""


class HttpServer:
    """Serves ``app``, which calls ``mesh``; opens and closes ``mesh``."""

    def __init__(self, settings: GatewaySettings, app: ASGIApp, mesh: KnownOrchestrators) -> None:
        self.health = Health(stall_s=settings.stall_seconds)
        self._settings = settings
        self._app = Leaving(app)
        self._mesh = mesh
        self._server: uvicorn.Server | None = None
        self._ticking: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None
        self._chores: list[asyncio.Task[None]] = []

    async def listen(self) -> str:
        """Serve; return the address. Raises ``CannotStart``."""
        if self._settings.tls is None:
            check_plaintext(self._settings)
        try:
            await self._mesh.open()
        except UnusableFile as error:
            raise CannotStart(str(error)) from error
        listener = self._bind()
        server = uvicorn.Server(self._config())
        server.config.load()
        server.lifespan = server.config.lifespan_class(server.config)
        server.servers = [await self._accepting(server, listener)]
        self._server = server
        self._ticking = asyncio.create_task(server.main_loop())
        chores = (give_memory_back(), report_lack_of_descriptors())
        self._chores = list(map(asyncio.create_task, chores))
        host, port = listener.getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    @property
    def num_connections(self) -> int:
        """The number of open client connections."""
        return len(self._server.server_state.connections) if self._server else 0

    async def start(self) -> None:
        """Report that the start is over. Orchestrators need not be there yet: readiness follows
        them as they come and go."""
        self.health.started()
        if self._settings.probe_at is not None:  # without a probe port nobody reads readiness
            self._looking = asyncio.create_task(self._look())

    async def _look(self) -> None:
        while True:
            self.health.ready(await self._mesh.probe.serves())
            await asyncio.sleep(LOOK_SECONDS)

    async def broken(self) -> None:
        """Never return, since a gateway does not break."""
        await asyncio.Event().wait()

    async def leave(self) -> None:
        """Report NOT_SERVING to probes and at /healthz, and close each connection after its next
        response, so that the client's next request looks for another gateway."""
        await self._stop_looking()
        self.health.ready(can_answer=False)
        self._app.leaves = True

    async def drain(self) -> None:
        """Close the port and idle connections, give running requests ``drain_seconds`` to end, and
        then break them off with an error."""
        if self._server is not None and self._ticking is not None:
            self._ticking.cancel()  # uvicorn's should_exit is noticed up to 0.1 s later
            await asyncio.gather(self._ticking, return_exceptions=True)
            loop = asyncio.get_running_loop()
            timer = loop.call_later(self._settings.drain_seconds, self._app.break_off)
            await self._server.shutdown()
            timer.cancel()

    async def stop(self) -> None:
        """Cancel the requests that still run, and close the connections to the mesh."""
        running = list(self._server.server_state.tasks) if self._server else []
        running += self._chores
        for task in running:
            if not task.cancelling():
                task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await self._stop_looking()
        await self._mesh.aclose()

    async def _stop_looking(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait({self._looking})

    def _bind(self) -> socket.socket:
        host, port = self._settings.host, self._settings.port
        try:
            (family, *_, address), *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            shares = self._settings.shares_port
            listener = socket.create_server(address, family=family, reuse_port=shares)
        except OSError as error:
            raise cannot_listen(host, port, error) from error
        # asyncio sets this only on sockets that it creates itself. Without it a body, or the next
        # event of a stream, waits up to 40 ms for the client to acknowledge the data before it.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener

    async def _accepting(
        self, server: uvicorn.Server, listener: socket.socket
    ) -> asyncio.base_events.Server:
        """Accept connections as uvicorn's own startup does, but as ``HttpConnection``."""
        config, settings = server.config, self._settings
        shared = Connections(
            max_all=settings.max_connections,
            max_per_address=settings.max_connections_per_address or settings.max_connections,
            stall_s=settings.stall_seconds,
        )
        return await asyncio.get_running_loop().create_server(
            lambda: HttpConnection(config, server.server_state, shared),
            sock=listener,
            ssl=config.ssl,
            ssl_handshake_timeout=HEAD_SECONDS if config.ssl else None,
            backlog=config.backlog,
        )

    def _config(self) -> uvicorn.Config:
        """Return uvicorn's configuration. Raises ``CannotStart`` for unusable TLS files."""
        return uvicorn.Config(
            self._app,
            http="httptools",
            ws="none",
            loop="asyncio",
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=math.ceil(self._settings.drain_seconds) + BREAK_OFF_SECONDS,
            ssl_context_factory=self._tls(),
        )

    def _tls(self) -> Callable[..., ssl.SSLContext] | None:
        files = self._settings.tls
        if files is None:
            return None
        try:
            context = RenewedContext(files, require_clients=self._settings.requires_certificates)
        except UnusableFile as error:
            raise CannotStart(str(error)) from error
        return lambda *_: context
