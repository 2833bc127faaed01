"""A gRPC service behind one port: health, reflection, TLS, who may call, and how calls are run."""

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

from specmesh.serving.conventions import CALLS_ACTIVE
from specmesh.serving.identity.entry import GuardedPort
from specmesh.serving.identity.watched import UnusableFile
from specmesh.serving.process.life_cycle import run_process
from specmesh.serving.rpc.call_metrics import timed
from specmesh.serving.rpc.drain import RequestGate
from specmesh.serving.rpc.health import Health
from specmesh.serving.rpc.intake import MAX_METADATA_BYTES, MAX_REQUEST_BYTES, Intake
from specmesh.serving.rpc.interceptors import CallInterceptor, Layer, reporting_errors
from specmesh.serving.rpc.late_handlers import LateHandlers
from specmesh.serving.rpc.listening import listens
from specmesh.serving.rpc.server_spans import traced
from specmesh.serving.settings import RedisSettings, ServerSettings
from specmesh.serving.startup import CannotStart
from specmesh.serving.telemetry.pipeline import metrics_enabled, tracing_enabled

log = logging.getLogger(__name__)

_UNTYPED_FACTOR = 2
"""How much wider gRPC's own limits are than ours: what is between is refused with a reason."""

_OPTIONS: Sequence[tuple[str, int]] = (
    # Two processes on one port would share its calls silently.
    ("grpc.so_reuseport", 0),
    ("grpc.max_send_message_length", MAX_REQUEST_BYTES),
    ("grpc.max_metadata_size", _UNTYPED_FACTOR * MAX_METADATA_BYTES),
    ("grpc.absolute_max_metadata_size", 2 * _UNTYPED_FACTOR * MAX_METADATA_BYTES),
    ("grpc.keepalive_permit_without_calls", 1),
    # Clients may ping this often; at gRPC's default of 5 minutes they would be cut off.
    ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
)

_KEEPALIVE_MS = 20_000
_KEEPALIVE_TIMEOUT_MS = 10_000
"""A peer that has vanished or stopped without a word frees its calls within 30 s."""

_FLUSH_SECONDS = 0.5
"""How long responses may take to leave; then calls that never end (health watchers, calls kept open
for the next request) are cut."""


class Service(Protocol):
    """What a role implements to be served."""

    @property
    def role(self) -> str:
        """Name of the role: "verifier"."""

    @property
    def names(self) -> Sequence[str]:
        """Full names of its gRPC services, as health and reflection list them."""

    async def start(self) -> None:
        """Return once its own part is done so that calls can be answered: model loaded, warm-up
        done."""

    def register(self, server: grpc.aio.Server) -> None:
        """Add the servicers, with the generated ``add_*_to_server``; called after ``start`` and
        ``connect``."""

    async def stop(self) -> None:
        """Free what ``start`` took; called after the last call, also if ``start`` failed
        or never ran."""


@runtime_checkable
class Dependent(Protocol):
    """A service that can answer only while others are there."""

    async def connect(self) -> None:
        """Return once calls can be answered; called after ``start``. Raises ``CannotStart``."""

    def can_answer(self) -> bool:
        """Whether those that it needs are there."""

    def watched(self, watcher: Callable[[], None]) -> AbstractContextManager[None]:
        """Call ``watcher`` whenever that may have changed, while the block lasts."""


@runtime_checkable
class Breakable(Protocol):
    """A service that may break for good while it serves."""

    async def broken(self) -> str:
        """Return why, once no call can be answered any more; never otherwise."""


@runtime_checkable
class Hanging(Protocol):
    """A service that may leave threads behind which can't be told to end."""

    @property
    def hangs(self) -> bool:
        """Whether it has left any."""


class Server:
    """One service behind one port, with health and reflection."""

    def __init__(self, settings: ServerSettings, service: Service) -> None:
        self._settings = settings
        self._service = service
        self._gate = RequestGate()
        self._handlers = LateHandlers()
        self.health = Health(service.names)
        self._following: asyncio.Task[None] | None = None
        layers: list[Layer] = [reporting_errors, self._gate.admit]
        if metrics_enabled():
            layers.insert(0, timed)
        if tracing_enabled():
            layers.insert(0, traced)
        intake = Intake(settings.max_request_bytes, settings.max_held_bytes)
        self._entry = GuardedPort(settings)
        guard = self._entry.guard.admit
        self._server = grpc.aio.server(
            handlers=[self._handlers],
            interceptors=[CallInterceptor(layers, intake, settings.stall_seconds, guard)],
            options=(
                *_OPTIONS,
                ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
                ("grpc.keepalive_timeout_ms", _KEEPALIVE_TIMEOUT_MS),
                # gRPC waits for the answer to a ping as long as this says, by default for 60 s.
                ("grpc.http2.ping_timeout_ms", _KEEPALIVE_TIMEOUT_MS),
                ("grpc.max_receive_message_length", _UNTYPED_FACTOR * settings.max_request_bytes),
                ("grpc.max_concurrent_streams", settings.max_concurrent_streams),
                *_connection_age(settings),
            ),
        )
        self.health.add_to(self._server)
        names = (*service.names, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, self._server)

    @property
    def num_running(self) -> int:
        """Requests that are being answered."""
        return self._gate.num_running

    async def listen(self) -> str:
        """Answer health checks, with NOT_SERVING; return the address. Raises ``CannotStart``."""
        host = self._settings.host
        credentials = await self._entry.open()
        host = f"[{host}]" if ":" in host else host
        address = f"{host}:{self._settings.port}"
        try:
            if credentials is None:
                port = self._server.add_insecure_port(address)
            else:
                port = self._server.add_secure_port(address, credentials)
        except RuntimeError as error:
            raise CannotStart(f"cannot listen on {address}") from error
        await self.health.alive()
        listens(self._settings.host, port)
        await self._server.start()
        return f"{host}:{port}"

    async def start(self) -> None:
        """Start the service, then answer its calls and report SERVING. Raises ``CannotStart``."""
        _check_redis_files(self._settings)
        await self._service.start()
        await self.health.started()
        if isinstance(self._service, Dependent):
            await self._service.connect()
        self._service.register(cast("grpc.aio.Server", self._handlers))
        await self.health.ready(can_answer=True)
        if isinstance(self._service, Dependent):
            self._following = asyncio.create_task(self._follow(self._service))

    async def _follow(self, service: Dependent) -> None:
        """Report NOT_SERVING while those that the service needs are away."""
        changed = asyncio.Event()
        with service.watched(changed.set):
            while True:
                changed.clear()
                await self.health.ready(service.can_answer())
                await changed.wait()

    async def broken(self) -> None:
        """Return once the service has broken, and log why."""
        if not isinstance(self._service, Breakable):
            await asyncio.Event().wait()
        else:
            reason = await self._service.broken()
            await self.health.broken()
            log.critical("broken", extra={"reason": reason})

    async def leave(self) -> None:
        """Report NOT_SERVING for good."""
        await self._stop_following()
        await self.health.ready(can_answer=False)

    async def drain(self) -> None:
        """Refuse new calls, let running ones end within ``drain_seconds``.

        Clients are told at once to close their connections (GOAWAY), so that they look for another
        server and not for the reason of a refusal. Calls that are open meet the gate. What arrives
        in the moment of ``stop`` may never reach the gate, and then hangs until the end.
        """
        limit_s = self._settings.drain_seconds
        stopping = asyncio.create_task(self._server.stop(limit_s + _FLUSH_SECONDS))
        num_broken = await self._gate.close(limit_s)
        if num_broken:
            log.warning("calls broken off", extra={"num_calls": num_broken})
        await self._server.stop(None if num_broken else _FLUSH_SECONDS)
        await stopping

    async def stop(self) -> None:
        """Break off the calls that still run, and stop the service."""
        await self._stop_following()
        await self._server.stop(None)
        await self._entry.close()
        await self._service.stop()

    async def _stop_following(self) -> None:
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait({self._following})


def _connection_age(settings: ServerSettings) -> Sequence[tuple[str, int]]:
    """The options of a server that has its clients connect anew from time to time."""
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


async def serve(settings: ServerSettings, service: Service) -> int:
    """Run the whole process of a gRPC service; return its exit status."""

    def make() -> Server:
        server = Server(settings, service)
        CALLS_ACTIVE.observe(lambda: [Observation(server.num_running)])
        return server

    status = await run_process(settings, service.role, make)
    if isinstance(service, Hanging) and service.hangs:
        # The interpreter would wait for its threads, and may crash beneath them.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    return status
