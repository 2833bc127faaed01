"""The health of a process over gRPC, with a separate service name for each kind of probe.

The event loop that answers the calls also answers health checks, so a process whose loop hangs
fails its liveness probe by timeout.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from specmesh.serving.rpc.interceptors import STALL_SECONDS
from specmesh.serving.rpc.observed_request import Context, ObservedRequest
from specmesh.serving.rpc.reported_errors import ReportingErrors
from specmesh.serving.rpc.stalls import Stalls

STARTUP = "startup"
"""SERVING once the process has done its own part of the start, such as loading a model, and ever
after. The operator sets the time limit for this in the startup probe."""
LIVENESS = "liveness"
"""SERVING from the first moment to the last, even while a model is loading and while calls drain;
NOT_SERVING once the process is permanently broken and must be restarted."""
READINESS = "readiness"
"""SERVING while calls can be answered: not during the start, not while services that the process
needs are unavailable, and not after SIGTERM. The whole server ("") and its services have the same
status."""
PROBES = (STARTUP, LIVENESS, READINESS)


class Health(health_pb2_grpc.HealthServicer):  # type: ignore[misc] # it has no types
    """Answers health checks, on one server or several; its owner reports every change.

    The servicer of grpcio-health-checking would hold a lock while it writes, so that one watcher
    who doesn't read would stop every change for everybody.
    """

    def __init__(self, services: Sequence[str] = (), stall_s: float = STALL_SECONDS) -> None:
        """Report readiness also under ``services``, full names of gRPC services. A watcher that
        doesn't read is cut off after ``stall_s``."""
        self._calls = (READINESS, health.OVERALL_HEALTH, *services)
        self._serving: dict[str, bool] = {}
        self._changed = asyncio.Event()
        self._stalls = Stalls(stall_s)

    def add_to(self, server: grpc.aio.Server) -> None:
        """Answer health checks on ``server``."""
        health_pb2_grpc.add_HealthServicer_to_server(self, server)

    def alive(self) -> None:
        """Report that the process is alive and has begun to start."""
        self._set(serving=False, names=(STARTUP, *self._calls))
        self._set(serving=True, names=(LIVENESS,))

    def started(self) -> None:
        """Report that the process has done its own part of the start."""
        self._set(serving=True, names=(STARTUP,))

    def ready(self, can_answer: bool) -> None:
        """Report whether calls can be answered from now on."""
        self._set(serving=can_answer, names=self._calls)

    def broken(self) -> None:
        """Report that the process is permanently broken."""
        self._set(serving=False, names=(LIVENESS, *self._calls))

    def _set(self, *, serving: bool, names: Sequence[str]) -> None:
        self._serving |= dict.fromkeys(names, serving)
        self._changed.set()
        self._changed = asyncio.Event()

    async def Check(  # noqa: N802
        self, request: health_pb2.HealthCheckRequest, context: Context
    ) -> health_pb2.HealthCheckResponse:
        """Answer with the status of a service."""
        if request.service not in self._serving:
            await context.abort(grpc.StatusCode.NOT_FOUND)
        return self._status_of(request.service)

    async def Watch(  # noqa: N802
        self, request: health_pb2.HealthCheckRequest, context: Context
    ) -> None:
        """Send the status of a service, and again whenever it has changed."""
        told = None
        # gRPC could not end the call while they wait with the first message.
        await context.send_initial_metadata(())
        async with ReportingErrors(ObservedRequest("grpc.health.v1.Health/Watch", context)):
            while True:
                changed = self._changed
                status = self._status_of(request.service)
                if status != told:
                    await self._stalls.write(context, status)
                    told = status
                await changed.wait()

    def _status_of(self, service: str) -> health_pb2.HealthCheckResponse:
        said = health_pb2.HealthCheckResponse
        if service not in self._serving:
            return said(status=said.SERVICE_UNKNOWN)
        return said(status=said.SERVING if self._serving[service] else said.NOT_SERVING)
