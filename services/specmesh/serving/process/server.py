"""A gRPC service behind one port: health, reflection, TLS, access control, and layers of calls."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, cast, runtime_checkable

import grpc.aio
from grpc_health.v1 import health
from grpc_reflection.v1alpha import reflection
from opentelemetry.metrics import Observation

from specmesh.serving.errors import ServiceError
from specmesh.serving.identity.entry import GuardedPort
from specmesh.serving.identity.watched import UnusableFile
from specmesh.serving.metrics import CALLS_ACTIVE
from specmesh.serving.process.life_cycle import ALONE, Supervision, run_process
from specmesh.serving.rpc.call_metrics import timed
from specmesh.serving.rpc.drain import RequestGate
from specmesh.serving.rpc.health import Health
from specmesh.serving.rpc.intake import MAX_METADATA_BYTES, MAX_REQUEST_BYTES, Intake
from specmesh.serving.rpc.interceptors import CallInterceptor, Layer
from specmesh.serving.rpc.late_handlers import LateHandlers, still_loading
from specmesh.serving.rpc.listening import listens
from specmesh.serving.rpc.server_spans import traced
from specmesh.serving.settings import RedisSettings, ServerSettings
from specmesh.serving.startup import CannotStart
from specmesh.serving.telemetry.pipeline import metrics_enabled, tracing_enabled

log = logging.getLogger(__name__)

_UNTYPED_FACTOR = 2
"""The ratio of gRPC's own limits to ours: our refusal, up to gRPC's limit, comes with a reason."""

_OPTIONS: Sequence[tuple[str, int]] = (
    ("grpc.max_send_message_length", MAX_REQUEST_BYTES),
    ("grpc.max_metadata_size", _UNTYPED_FACTOR * MAX_METADATA_BYTES),
    ("grpc.absolute_max_metadata_size", 2 * _UNTYPED_FACTOR * MAX_METADATA_BYTES),
    ("grpc.keepalive_permit_without_calls", 1),
    # Clients that ping more often than gRPC's default of 5 minutes would be disconnected.
    ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
)

_HANDSHAKE_MS = 10_000
"""A connection that has not begun to speak HTTP/2 by then is closed. In gRPC's default of 2 minutes
connections that send nothing could take all file descriptors."""

_KEEPALIVE_MS = 20_000
_KEEPALIVE_TIMEOUT_MS = 10_000
"""The calls of a peer that has vanished or hangs end within the sum, 30 s."""

_FLUSH_SECONDS = 0.5
"""The time for the last responses to be sent. Calls that never end by themselves (health watchers,
calls kept open for the next request) are cut then."""


class Service(Protocol):
    """The interface that each role implements."""

    @property
    def role(self) -> str:
        """The name of the role, such as "verifier"."""

    @property
    def names(self) -> Sequence[str]:
        """The full names of the role's gRPC services, for health and reflection."""

    async def start(self) -> None:
        """Do the service's own preparation, such as loading and warming up a model."""

    def register(self, server: grpc.aio.Server) -> None:
        """Add the servicers with the generated ``add_*_to_server``; called after ``start`` and
        ``connect``."""

    async def stop(self) -> None:
        """Release what ``start`` acquired; called after the last call, even if ``start`` failed or
        never ran."""


@runtime_checkable
class Dependent(Protocol):
    """A service that can answer only while other services are available."""

    async def connect(self) -> None:
        """Return once calls can be answered; called after ``start``. Raises ``CannotStart``."""

    def refusal(self, method: str) -> ServiceError:
        """Return the refusal of a call that comes before ``connect`` has returned. ``method`` is
        its full name, or empty if there is no such method."""

    def can_answer(self) -> bool:
        """Return True if the services that it needs are available."""

    def watched(self, watcher: Callable[[], None]) -> AbstractContextManager[None]:
        """Call ``watcher`` whenever ``can_answer`` may have changed, while the block lasts."""


@runtime_checkable
class Breakable(Protocol):
    """A service that may break permanently while it serves."""

    async def broken(self) -> str:
        """Wait until no call can be answered any more; return the reason."""


@runtime_checkable
class Hanging(Protocol):
    """A service that may leave threads behind that can't be stopped."""

    @property
    def hangs(self) -> bool:
        """True if such threads are left."""


class Server:
    """One service behind one port, with health and reflection."""

    def __init__(self, settings: ServerSettings, service: Service) -> None:
        self._settings = settings
        self._service = service
        self._gate = RequestGate()
        refusal = service.refusal if isinstance(service, Dependent) else still_loading
        self._handlers = LateHandlers(refusal, service.names)
        self.health = Health(service.names, settings.stall_seconds)
        self._following: asyncio.Task[None] | None = None
        layers: list[Layer] = []
        if tracing_enabled():
            layers.append(traced)
        if metrics_enabled():
            layers.append(timed)
        intake = Intake(settings.max_request_bytes, settings.max_held_bytes)
        self._entry = GuardedPort(settings)
        guard = self._entry.guard
        self._server = grpc.aio.server(
            interceptors=[
                CallInterceptor(
                    *(layers, self._gate.admit, intake, settings.stall_seconds),
                    guard=guard.admit,
                    screen=guard.screen,
                )
            ],
            options=(
                *_OPTIONS,
                # Two processes on one port would share its calls silently, unless they are workers.
                ("grpc.so_reuseport", int(settings.shares_port)),
                ("grpc.server_handshake_timeout_ms", _HANDSHAKE_MS),
                ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
                ("grpc.keepalive_timeout_ms", _KEEPALIVE_TIMEOUT_MS),
                # gRPC waits this long for the answer to a ping, by default 60 s.
                ("grpc.http2.ping_timeout_ms", _KEEPALIVE_TIMEOUT_MS),
                ("grpc.max_receive_message_length", _UNTYPED_FACTOR * settings.max_request_bytes),
                ("grpc.max_concurrent_streams", settings.max_concurrent_streams),
                *_connection_age(settings),
            ),
        )
        self.health.add_to(self._server)
        names = (*service.names, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, self._server)
        # Behind those, since it refuses every method until handlers are registered.
        self._server.add_generic_rpc_handlers((self._handlers,))

    @property
    def num_running(self) -> int:
        """The number of requests being answered."""
        return self._gate.num_running

    async def listen(self) -> str:
        """Open the port and report NOT_SERVING; return the address. Raises ``CannotStart``."""
        host = self._settings.host
        credentials = await self._entry.open()
        host = f"[{host}]" if ":" in host else host
        address = f"{host}:{self._settings.port}"
        try:
            if credentials is None:
                port = self._server.add_insecure_port(address)
            else:
                port = self._server.add_secure_port(address, credentials)
        except RuntimeError as error:  # gRPC gives no reason
            refused = "" if credentials is None else ", and --tls-cert may be of no use for TLS"
            raise CannotStart(
                f"cannot listen on {address}; if the port is in use, --port takes another{refused}"
            ) from error
        self.health.alive()
        listens(self._settings.host, port)
        await self._server.start()
        return f"{host}:{port}"

    async def start(self) -> None:
        """Start the service, then answer its calls and report SERVING. Raises ``CannotStart``."""
        _check_redis_files(self._settings)
        await self._service.start()
        self.health.started()
        if isinstance(self._service, Dependent):
            await self._service.connect()
        self._service.register(cast("grpc.aio.Server", self._handlers))
        self.health.ready(can_answer=True)
        if isinstance(self._service, Dependent):
            self._following = asyncio.create_task(self._follow(self._service))

    async def _follow(self, service: Dependent) -> None:
        """Report NOT_SERVING while services that this one needs are unavailable."""
        changed = asyncio.Event()
        with service.watched(changed.set):
            while True:
                changed.clear()
                self.health.ready(service.can_answer())
                await changed.wait()

    async def broken(self) -> None:
        """Wait until the service has broken, and log the reason."""
        if not isinstance(self._service, Breakable):
            await asyncio.Event().wait()
        else:
            reason = await self._service.broken()
            self.health.broken()
            log.critical("broken", extra={"reason": reason})

    async def leave(self) -> None:
        """Report NOT_SERVING from now on."""
        await self._stop_following()
        self.health.ready(can_answer=False)

    async def drain(self) -> None:
        """Refuse new requests, and give running ones ``drain_seconds`` to end.

        Clients get GOAWAY immediately, so that they connect to another server instead of being
        refused here. The gate refuses new requests on open calls. A request that arrives just as
        gRPC stops may never reach the gate; it then hangs until the server has stopped.
        """
        limit_s = self._settings.drain_seconds
        stopping = asyncio.create_task(self._server.stop(limit_s + _FLUSH_SECONDS))
        num_broken = await self._gate.close(limit_s)
        if num_broken:
            log.warning("calls broken off", extra={"num_calls": num_broken})
        await self._server.stop(None if num_broken else _FLUSH_SECONDS)
        await stopping

    async def stop(self) -> None:
        """Cancel the calls that still run, and stop the service."""
        await self._stop_following()
        await self._server.stop(None)
        await self._entry.close()
        await self._service.stop()

    async def _stop_following(self) -> None:
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait({self._following})


def _connection_age(settings: ServerSettings) -> Sequence[tuple[str, int]]:
    """Return the options that make clients reconnect from time to time."""
    if settings.max_connection_age_seconds is None:
        return ()
    return (
        ("grpc.max_connection_age_ms", round(settings.max_connection_age_seconds * 1e3)),
        ("grpc.max_connection_age_grace_ms", round(settings.max_connection_grace_seconds * 1e3)),
    )


def _check_redis_files(settings: ServerSettings) -> None:
    if isinstance(settings, RedisSettings):
        try:
            settings.redis_tls.check()
        except UnusableFile as error:
            raise CannotStart(str(error)) from error


async def serve(
    settings: ServerSettings, service: Service, supervision: Supervision = ALONE
) -> int:
    """Run the whole process of a gRPC service; return its exit status."""

    def make() -> Server:
        server = Server(settings, service)
        CALLS_ACTIVE.observe(lambda: [Observation(server.num_running)])
        return server

    status = await run_process(settings, service.role, make, supervision)
    if isinstance(service, Hanging) and service.hangs:
        # On exit the interpreter would wait for these threads, and they may crash it.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    return status
