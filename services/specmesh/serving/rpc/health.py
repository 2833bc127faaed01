"""The health of a process over gRPC, with a separate service name for each kind of probe.

The event loop that answers the calls also answers health checks, so a process whose loop hangs
fails its liveness probe by timeout.
"""

from __future__ import annotations

from collections.abc import Sequence

import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

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


class Health:
    """Answers health checks, on one server or several; its owner reports every change."""

    def __init__(self, services: Sequence[str] = ()) -> None:
        """Report readiness also under ``services``, full names of gRPC services."""
        self._servicer = health.aio.HealthServicer()
        self._calls = (READINESS, health.OVERALL_HEALTH, *services)

    def add_to(self, server: grpc.aio.Server) -> None:
        """Answer health checks on ``server``."""
        health_pb2_grpc.add_HealthServicer_to_server(self._servicer, server)

    async def alive(self) -> None:
        """Report that the process is alive and has begun to start."""
        await self._set(serving=False, names=(STARTUP, *self._calls))
        await self._set(serving=True, names=(LIVENESS,))

    async def started(self) -> None:
        """Report that the process has done its own part of the start."""
        await self._set(serving=True, names=(STARTUP,))

    async def ready(self, can_answer: bool) -> None:
        """Report whether calls can be answered from now on."""
        await self._set(serving=can_answer, names=self._calls)

    async def broken(self) -> None:
        """Report that the process is permanently broken."""
        await self._set(serving=False, names=(LIVENESS, *self._calls))

    async def _set(self, *, serving: bool, names: Sequence[str]) -> None:
        said = health_pb2.HealthCheckResponse
        for name in names:
            await self._servicer.set(name, said.SERVING if serving else said.NOT_SERVING)
