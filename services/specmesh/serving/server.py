"""The life cycle of a server process: start, become healthy, serve, drain, end."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Protocol, cast, runtime_checkable

import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from opentelemetry.metrics import Observation

from specmesh.serving import logging as json_logging
from specmesh.serving.call_metrics import timed
from specmesh.serving.conventions import CALLS_ACTIVE
from specmesh.serving.drain import RequestGate
from specmesh.serving.errors import Unavailable
from specmesh.serving.identity.certificates import server_credentials, watched_certificate
from specmesh.serving.identity.guard import Guard
from specmesh.serving.identity.settings import is_loopback
from specmesh.serving.identity.watched import UnusableFile
from specmesh.serving.intake import MAX_METADATA_BYTES, MAX_REQUEST_BYTES, Intake
from specmesh.serving.interceptors import CallInterceptor, Context, Layer, reporting_errors
from specmesh.serving.listening import listens
from specmesh.serving.scrape import Scrape
from specmesh.serving.settings import ProcessSettings, ServerSettings
from specmesh.serving.telemetry import configure, metrics_enabled, tracing_enabled
from specmesh.serving.tracing import traced

log = logging.getLogger(__name__)

_UNTYPED_FACTOR = 2
"""How much wider gRPC's own limits are than ours: what is between is refused with a reason."""

_OPTIONS: Sequence[tuple[str, int]] = (
    # Two processes on one port would share its calls silently.
    ("grpc.so_reuseport", 0),
    ("grpc.max_send_message_length", MAX_REQUEST_BYTES),
    ("grpc.max_metadata_size", _UNTYPED_FACTOR * MAX_METADATA_BYTES),
    ("grpc.absolute_max_metadata_size", 2 * _UNTYPED_FACTOR * MAX_METADATA_BYTES),
    # A peer that vanished without a word frees its calls within 30 s.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    # Clients may ping this often; at gRPC's default of 5 minutes they would be cut off.
    ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
)

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
        """Return once calls can be answered: model loaded, warm-up done."""

    def register(self, server: grpc.aio.Server) -> None:
        """Add the servicers, with the generated ``add_*_to_server``; called after ``start``."""

    async def stop(self) -> None:
        """Free what ``start`` took; called after the last call, also if ``start`` failed
        or never ran."""


@runtime_checkable
class Breakable(Protocol):
    """A service that may break for good while it serves."""

    async def broken(self) -> str:
        """Return why, once no call can be answered any more; never otherwise."""


class CannotStart(Exception):
    """The process cannot do its work as configured; the message is for whoever started it."""


def check_plaintext(settings: ProcessSettings) -> None:
    """Raises ``CannotStart`` if others on the network could read what should be among processes
    of this machine."""
    if not (is_loopback(settings.host) or settings.plaintext_beyond_loopback):
        raise CannotStart(
            f"{settings.host} is not loopback: give --tls-cert and --tls-key, or "
            "--plaintext-beyond-loopback"
        )


def check_plaintext_calls(settings: ProcessSettings, addresses: Iterable[str], ca: str) -> None:
    """Raises ``CannotStart`` if calls to ``addresses``, host:port each, would leave this machine in
    plain text. ``ca`` is the option that makes them TLS."""
    if settings.plaintext_beyond_loopback:
        return
    for address in addresses:
        if not is_loopback(address.rpartition(":")[0].strip("[]")):
            raise CannotStart(
                f"{address} is not loopback: give {ca}, or --plaintext-beyond-loopback"
            )


class LifeCycle(Protocol):
    """What a process serves, from its start to its end."""

    async def listen(self) -> str:
        """Open the port; return its address. Raises ``CannotStart``."""

    async def start(self) -> None:
        """Return once what calls need is there. Raises ``CannotStart``."""

    async def broken(self) -> None:
        """Return once no call can be answered any more, and log why."""

    async def drain(self) -> None:
        """Take in nothing new, and let what runs end."""

    async def stop(self) -> None:
        """Break off what still runs."""


class Server:
    """One service behind one port, with health and reflection."""

    def __init__(self, settings: ServerSettings, service: Service) -> None:
        self._settings = settings
        self._service = service
        self._gate = RequestGate()
        self._handlers = _LateHandlers()
        self._health = health.aio.HealthServicer()
        layers: list[Layer] = [reporting_errors, self._gate.admit]
        if metrics_enabled():
            layers.insert(0, timed)
        if tracing_enabled():
            layers.insert(0, traced)
        intake = Intake(settings.max_request_bytes)
        self._bearer = settings.bearer
        guard = Guard(by_certificate=settings.requires_certificates, bearer=self._bearer).admit
        self._server = grpc.aio.server(
            handlers=[self._handlers],
            interceptors=[CallInterceptor(layers, intake, settings.stall_seconds, guard)],
            options=(
                *_OPTIONS,
                ("grpc.max_receive_message_length", _UNTYPED_FACTOR * settings.max_request_bytes),
                ("grpc.max_concurrent_streams", settings.max_concurrent_streams),
            ),
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        names = (*service.names, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, self._server)

    @property
    def num_running(self) -> int:
        """Requests that are being answered."""
        return self._gate.num_running

    async def listen(self) -> str:
        """Answer health checks, with NOT_SERVING; return the address. Raises ``CannotStart``."""
        host = self._settings.host
        credentials = self._credentials()
        host = f"[{host}]" if ":" in host else host
        address = f"{host}:{self._settings.port}"
        try:
            if credentials is None:
                port = self._server.add_insecure_port(address)
            else:
                port = self._server.add_secure_port(address, credentials)
        except RuntimeError as error:
            raise CannotStart(f"cannot listen on {address}") from error
        await self._set_health(health_pb2.HealthCheckResponse.NOT_SERVING)
        listens(self._settings.host, port)
        await self._server.start()
        return f"{host}:{port}"

    def _credentials(self) -> grpc.ServerCredentials | None:
        """What the port speaks TLS with, None for plain text. Raises ``CannotStart``."""
        settings = self._settings
        try:
            if self._bearer is not None:
                self._bearer.load()
            if settings.tls is not None:
                return server_credentials(
                    watched_certificate(settings.tls),
                    require_clients=settings.requires_certificates,
                )
        except UnusableFile as error:
            raise CannotStart(str(error)) from error
        check_plaintext(settings)
        return None

    async def start(self) -> None:
        """Start the service, then answer its calls and report SERVING."""
        await self._service.start()
        self._service.register(cast("grpc.aio.Server", self._handlers))
        await self._set_health(health_pb2.HealthCheckResponse.SERVING)

    async def broken(self) -> None:
        """Return once the service has broken, and log why."""
        if not isinstance(self._service, Breakable):
            await asyncio.Event().wait()
        else:
            log.critical("broken", extra={"reason": await self._service.broken()})

    async def drain(self) -> None:
        """Report NOT_SERVING, refuse new calls, let running ones end within ``drain_seconds``."""
        await self._health.enter_graceful_shutdown()
        num_broken = await self._gate.close(self._settings.drain_seconds)
        if num_broken:
            log.warning("calls broken off", extra={"num_calls": num_broken})
        await self._server.stop(None if num_broken else _FLUSH_SECONDS)

    async def stop(self) -> None:
        """Break off the calls that still run, and stop the service."""
        await self._server.stop(None)
        await self._service.stop()

    async def _set_health(self, status: health_pb2.HealthCheckResponse.ServingStatus) -> None:
        for name in (health.OVERALL_HEALTH, *self._service.names):
            await self._health.set(name, status)


class _LateHandlers(grpc.GenericRpcHandler):
    """Takes handlers in place of a server in ``add_*_to_server``: gRPC accepts none once it
    listens, but health must be answered long before a model is loaded."""

    def __init__(self) -> None:
        self._handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}

    def add_registered_method_handlers(
        self, service_name: str, method_handlers: Mapping[str, grpc.RpcMethodHandler[Any, Any]]
    ) -> None:
        for method, handler in method_handlers.items():
            self._handlers[f"/{service_name}/{method}"] = handler

    def add_generic_rpc_handlers(self, handlers: object) -> None:
        """Ignored: generated code passes the very same handlers here, without their names."""

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        """The handler of a method, None if there is none."""
        if not self._handlers:
            return _STARTING
        return self._handlers.get(handler_call_details.method)


async def _refuse_early(request: object, context: Context) -> None:  # noqa: ARG001
    raise Unavailable("STARTING", "this replica is still loading its model")


_STARTING: grpc.RpcMethodHandler[Any, Any] = grpc.unary_unary_rpc_method_handler(
    cast("Any", _refuse_early)
)


async def serve(settings: ServerSettings, service: Service) -> int:
    """Run the whole process of a gRPC service; return its exit status."""

    def make() -> Server:
        server = Server(settings, service)
        CALLS_ACTIVE.observe(lambda: [Observation(server.num_running)])
        return server

    return await run_process(settings, service.role, make)


async def run_process(settings: ProcessSettings, role: str, make: Callable[[], LifeCycle]) -> int:
    """Run what ``make`` makes once logs and telemetry are on; return the process's exit status.

    SIGTERM or SIGINT drains it (status 0), a second one breaks off the calls that still run
    (status 1, as when it cannot start), a third one kills. A service that breaks ends it with
    status 1, so that it is started again.
    """
    json_logging.configure(settings.log_level, role, settings.name)
    scrape = None if settings.metrics_at is None else Scrape()
    telemetry = configure(role, settings.name, scrape)
    status = 1
    try:
        server = make()
        try:
            if scrape is not None and settings.metrics_at is not None:
                _open(scrape, *settings.metrics_at)
            status = await _live(server, _Signals())
        finally:
            await server.stop()
    except CannotStart as error:
        log.error("cannot start", extra={"reason": str(error)})
    except Exception:
        log.exception("failed")
    finally:
        if scrape is not None:
            await asyncio.to_thread(scrape.close)
        await asyncio.to_thread(telemetry.shutdown)
        log.info("stopped", extra={"exit_status": status})
    return status


def _open(scrape: Scrape, host: str, port: int) -> None:
    """Let metrics be scraped: from the start, while a model is loaded, until the very end."""
    try:
        address = scrape.listen(host, port)
    except OSError as error:
        raise CannotStart(f"cannot serve metrics on {host}:{port}: {error}") from error
    log.info("metrics", extra={"address": address})


async def _live(server: LifeCycle, signals: _Signals) -> int:
    began = time.monotonic()
    address = await server.listen()
    log.info("starting", extra={"address": address})
    broke = False
    if await _ends_before(signals.first, server.start()):
        # What is loaded by now stays, large libraries included; collections need not scan it.
        gc.collect()
        gc.freeze()
        seconds = round(time.monotonic() - began, 3)
        log.info("serving", extra={"address": address, "start_seconds": seconds})
        broke = await _ends_before(signals.first, server.broken())
    log.info("draining")
    drained = await _ends_before(signals.second, server.drain())
    return 0 if drained and not broke else 1


class _Signals:
    """The first and the second SIGTERM or SIGINT; a third has no handler, and kills."""

    def __init__(self) -> None:
        self.first = asyncio.Event()
        self.second = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._receive)

    def _receive(self) -> None:
        if not self.first.is_set():
            self.first.set()
            return
        self.second.set()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


async def _ends_before(event: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Whether ``work`` ended before ``event`` was set, which cancels it. Raises its errors."""
    task = asyncio.create_task(work)
    waiter = asyncio.create_task(event.wait())
    await asyncio.wait({task, waiter}, return_when=asyncio.FIRST_COMPLETED)
    waiter.cancel()
    if task.done():
        task.result()
        return True
    task.cancel()
    await asyncio.wait({task})
    return False
