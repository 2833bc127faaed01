"""The mesh under load: a verifier and a drafter, several orchestrators, and a gateway."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from specmesh.cli.local.models import Models
from specmesh.cli.local.service import service_spec
from specmesh.cli.local.supervisor import Supervisor
from specmesh.load.transports.mesh_transport import MeshDoor
from specmesh.load.transports.openai_transport import OpenAiDoor
from specmesh.load.transports.transport import ServerAddress
from specmesh.tools.kit.observed import observed

DOORS = ("grpc", "gateway")
_START_TIMEOUT_S = 120.0
_STOP_TIMEOUT_S = 4.0
_DRAIN = ("--drain-seconds", "1")


@dataclass(frozen=True, slots=True)
class OverloadMesh:
    """A running mesh."""

    orchestrators: Sequence[str]
    gateway: str
    orchestrator_metrics: Sequence[str]
    """Addresses at which the orchestrators can be scraped."""
    verifier_metrics: str
    pids: Callable[[], Mapping[str, int]]
    """Returns all running processes by name."""
    kill: Callable[[], None]
    """Kills all processes immediately."""

    def door(self, name: str) -> ServerAddress:
        """Return the way into the mesh called ``name``, one of ``DOORS``."""
        if name == "grpc":
            return MeshDoor(tuple(self.orchestrators))
        return OpenAiDoor(f"http://{self.gateway}")


@asynccontextmanager
async def running(
    models: Models, num_orchestrators: int, directory: Path, report: Callable[[str], None]
) -> AsyncIterator[OverloadMesh]:
    """Start the mesh; logs go to ``directory``. Raises StartError."""
    supervisor = Supervisor(
        directory,
        start_timeout_s=_START_TIMEOUT_S,
        stop_timeout_s=_STOP_TIMEOUT_S,
        report=report,
    )
    async with AsyncExitStack() as stack:
        stack.push_async_callback(supervisor.stop)
        verifier, verifier_metrics = observed("verifier", "verifier", (*models.verifier(), *_DRAIN))
        drafters = [
            service_spec("drafter", f"drafter-{number}", (*arguments, *_DRAIN))
            for number, arguments in enumerate(models.drafters())
        ]
        target, *proposers = await supervisor.start(verifier, *drafters)
        peers = ("--verifiers", target, "--drafters", ",".join(proposers))
        fronts = [
            observed("orchestrator", f"orchestrator-{number}", (*peers, *_DRAIN))
            for number in range(num_orchestrators)
        ]
        orchestrators = await supervisor.start(*(spec for spec, _ in fronts))
        (gateway,) = await supervisor.start(
            service_spec(
                "gateway", "gateway", ("--orchestrators", ",".join(orchestrators), *_DRAIN)
            )
        )
        metrics = [address for _, address in fronts]
        yield OverloadMesh(
            orchestrators,
            gateway,
            metrics,
            verifier_metrics,
            pids=lambda: supervisor.pids,
            kill=supervisor.kill,
        )
