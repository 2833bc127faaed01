"""What a process says of itself by gRPC health, each state under a name of its own for probes.

A process that does not answer at all within a probe's timeout is not alive either: health is
answered by the event loop that answers the calls.
"""

from __future__ import annotations

from collections.abc import Sequence

import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

STARTUP = "startup"
"""SERVING once the process has done its own part of the start, such as loading a model, and ever
after. How long that may take only an operator knows: it is the bound of the startup probe."""
LIVENESS = "liveness"
"""SERVING from the first moment to the last, also while a model is loaded and while calls drain;
NOT_SERVING once the process is broken for good and must be started again."""
READINESS = "readiness"
"""SERVING while calls can be answered: not before the start is over, not while those that the
process needs are away, and not after SIGTERM. The same is said of the whole server ("") and of its
services."""
PROBES = (STARTUP, LIVENESS, READINESS)


class Health:
    """Answers health checks, on one server or several; it has to be told of every turn."""

    def __init__(self, services: Sequence[str] = ()) -> None:
        """``services`` are the full names of those whose health is that of the process."""
        self._servicer = health.aio.HealthServicer()
        self._calls = (READINESS, health.OVERALL_HEALTH, *services)

    def add_to(self, server: grpc.aio.Server) -> None:
        """Answer on ``server``."""
        health_pb2_grpc.add_HealthServicer_to_server(self._servicer, server)

    async def alive(self) -> None:
        """The process begins to start."""
        await self._set(serving=False, names=(STARTUP, *self._calls))
        await self._set(serving=True, names=(LIVENESS,))

    async def started(self) -> None:
        """It has done its own part."""
        await self._set(serving=True, names=(STARTUP,))

    async def ready(self, can_answer: bool) -> None:
        """Calls can be answered from now on, or they can't."""
        await self._set(serving=can_answer, names=self._calls)

    async def broken(self) -> None:
        """No call will be answered any more."""
        await self._set(serving=False, names=(LIVENESS, *self._calls))

    async def _set(self, *, serving: bool, names: Sequence[str]) -> None:
        said = health_pb2.HealthCheckResponse
        for name in names:
            await self._servicer.set(name, said.SERVING if serving else said.NOT_SERVING)
