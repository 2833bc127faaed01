"""Metrics of an orchestrator's mesh and admission queue, read at each scrape. Register each of them
once per process, on its event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from opentelemetry.metrics import Observation

from specmesh.orchestrator.admission.controller import Admission
from specmesh.orchestrator.admission.entrance import Entrance
from specmesh.orchestrator.replicas.replica_pools import ReplicaPools
from specmesh.serving import conventions as names
from specmesh.serving import metrics


def observe_replicas(mesh: ReplicaPools) -> None:
    """Register the gauge for replicas by state, which is wanted most while none is ready."""

    def replicas() -> Iterable[Observation]:
        return [
            Observation(number, {names.ROLE: pool.role, names.STATE: state})
            for pool in (mesh.verifiers, mesh.drafters, mesh.confidence)
            if pool.configured
            for state, number in pool.states().items()
        ]

    metrics.REPLICAS.observe(replicas)


def observe_answers(admission: Admission, entrance: Entrance) -> None:
    """Register gauges for running and waiting answers, the room for answers, and tokens in
    flight."""
    metrics.REQUESTS_RUNNING.observe(lambda: [Observation(admission.num_running)])
    metrics.TOKENS_IN_FLIGHT.observe(lambda: [Observation(admission.num_tokens_in_flight)])
    metrics.REQUESTS_WAITING.observe(lambda: [Observation(entrance.num_waiting)])
    clock = asyncio.get_running_loop().time
    metrics.REQUESTS_ROOM.observe(lambda: [Observation(entrance.room(clock()))])
