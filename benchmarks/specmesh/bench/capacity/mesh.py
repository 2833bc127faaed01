"""The mesh under measurement: one process of each role, whose models answer at once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from specmesh.bench.capacity.placement import CorePlan, Role
from specmesh.cli.local.models import WaitingModels
from specmesh.cli.local.process import ProcessSpec, StartError
from specmesh.cli.local.redis import redis_spec
from specmesh.cli.local.supervisor import Supervisor
from specmesh.cli.local.traces import Keep, TraceKeeping, sending_to
from specmesh.load.transports.mesh_transport import MeshDoor
from specmesh.load.transports.openai_transport import OpenAiDoor
from specmesh.load.transports.transport import RequestFailed, ServerAddress
from specmesh.tools.kit.observed import observed

BATCH = 256
"""Most calls that share a forward: vLLM's default (``max_num_seqs``)."""
_MAX_QUEUE = "1024"
"""Calls that may wait for a model, so that one of every stream can."""
_MAX_WAIT_S = "600"
"""Time for which an answer may wait until the orchestrator lets it begin, so that none is
refused."""
_RETRIES = 100
"""Later starts of an answer for which the orchestrator has no place to wait."""
_START_TIMEOUT_S = 120.0
_STOP_TIMEOUT_S = 4.0
_DRAIN = ("--drain-seconds", "1")


@dataclass(frozen=True, slots=True)
class CapacityMesh:
    """A running mesh; ``pids`` and ``metrics``, the addresses to scrape, are by role. Streams come
    through ``door``."""

    door: ServerAddress
    pids: Mapping[Role, Sequence[int]]
    metrics: Mapping[Role, str]


def supervisor(directory: Path, report: Callable[[str], None]) -> Supervisor:
    """Return the supervisor of this benchmark's processes, whose logs go to ``directory``."""
    return Supervisor(
        directory, start_timeout_s=_START_TIMEOUT_S, stop_timeout_s=_STOP_TIMEOUT_S, report=report
    )


@asynccontextmanager
async def serving(
    acceptance: float,
    tracing: float,
    workers: int,
    cores: CorePlan,
    processes: Supervisor,
    directory: Path,
    *,
    through_gateway: bool = False,
    chunk_interval_ms: int = 0,
) -> AsyncIterator[CapacityMesh]:
    """Run a mesh whose orchestrator is that many ``workers``, and which records the share
    ``tracing`` of its answers in ``directory``. Two chunks of an answer are at least
    ``chunk_interval_ms`` apart. Raises StartError."""
    async with AsyncExitStack() as stack:
        # Not in the log directory: a socket's path has to be short.
        sockets = stack.enter_context(TemporaryDirectory(prefix="specmesh-redis-"))
        stack.push_async_callback(processes.stop)
        (redis,) = await processes.start(redis_spec(Path(sockets) / "redis.sock", cores.rest))
        environment = {
            **await _traced(processes, tracing, cores, directory),
            "OTEL_METRICS_EXPORTER": "none",  # They are scraped.
            "REDIS_URL": redis,
        }
        metrics: dict[Role, str] = {}

        def spec(role: Role, *arguments: str) -> ProcessSpec:
            made, metrics[role] = observed(
                *(role, role, (*arguments, *_DRAIN)),
                environment=environment,
                cores=cores.roles[role],
            )
            return made

        models = WaitingModels(target_ms=0.0, drafter_ms=0.0, acceptance=acceptance, batch=BATCH)
        queue = ("--max-queue", _MAX_QUEUE)
        (drafting,) = models.drafters()
        verifier, drafter = await processes.start(
            spec(Role.VERIFIER, *models.verifier(), *queue),
            spec(Role.DRAFTER, *drafting, *queue),
        )
        peers = ("--verifiers", verifier, "--drafters", drafter)
        waiting = ("--redis-check", "off", "--max-wait-seconds", _MAX_WAIT_S)
        others = (
            *waiting,
            "--workers",
            str(workers),
            "--chunk-interval-ms",
            f"{chunk_interval_ms}",
        )
        (address,) = await processes.start(spec(Role.ORCHESTRATOR, *peers, *others))
        door: ServerAddress = MeshDoor((address,), max_retries=_RETRIES)
        if through_gateway:
            (url,) = await processes.start(spec(Role.GATEWAY, "--orchestrators", address))
            door = await _named(OpenAiDoor(f"http://{url}"))
        pids = {role: _family(processes.pids[role]) for role in Role if role in metrics}
        yield CapacityMesh(door, pids, metrics)


async def _named(door: OpenAiDoor) -> OpenAiDoor:
    """Return the door for the model that the gateway has. Raises StartError."""
    try:
        async with door.open() as transport:
            return door.asking_for((await transport.served()).model)
    except RequestFailed as failed:
        raise StartError(f"the gateway does not answer: {failed}") from failed


def _family(pid: int) -> Sequence[int]:
    """Return a process and its workers, if it has any."""
    return [pid, *(child.pid for child in psutil.Process(pid).children())]


async def _traced(
    processes: Supervisor, share: float, cores: CorePlan, directory: Path
) -> Mapping[str, str]:
    """Return the environment of processes that record a ``share`` of traces, and start the
    collector that they send these to, unless it is 0."""
    if not share:
        return {"OTEL_TRACES_EXPORTER": "none"}
    keeping = TraceKeeping(Keep.ALL, directory / "traces.sqlite")
    (collector,) = await processes.start(keeping.spec(cores.rest))
    return {
        **sending_to(collector, keeping.keep),
        "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
        "OTEL_TRACES_SAMPLER_ARG": f"{share:g}",
    }
