"""The mesh: one set of replicas behind two sets of orchestrators, with the directory and
without."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from specmesh.cli.local.models import Models
from specmesh.cli.local.process import ProcessSpec
from specmesh.cli.local.redis import redis_spec
from specmesh.cli.local.service import service_spec
from specmesh.cli.local.supervisor import Supervisor

SIDES = ("without", "with")
_FLAGS = {"without": "--no-prefix-directory", "with": "--prefix-directory"}
_START_TIMEOUT_S = 120.0
_DRAIN = ("--drain-seconds", "1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The number of processes; ``orchestrators`` is that of each side."""

    verifiers: int
    orchestrators: int


@dataclass(frozen=True, slots=True)
class PrefixMesh:
    """A running mesh."""

    orchestrators: Mapping[str, Sequence[str]]
    """Addresses of orchestrators by side."""
    verifier_metrics: Sequence[str]
    """Addresses at which they can be scraped."""
    orchestrator_metrics: Mapping[str, Sequence[str]]
    kill: Callable[[], None]
    """Kills all processes immediately."""


@asynccontextmanager
async def running(
    models: Models, shape: Shape, directory: Path, report: Callable[[str], None]
) -> AsyncIterator[PrefixMesh]:
    """Start the mesh; logs go to ``directory``. Raises StartError."""
    supervisor = Supervisor(
        directory, start_timeout_s=_START_TIMEOUT_S, stop_timeout_s=4.0, report=report
    )
    async with AsyncExitStack() as stack:
        # Not in the directory of the logs, because the path of a socket must be short.
        sockets = stack.enter_context(TemporaryDirectory(prefix="specmesh-redis-"))
        stack.push_async_callback(supervisor.stop)
        (redis_url,) = await supervisor.start(redis_spec(Path(sockets) / "redis.sock"))
        store = ("--redis-url", redis_url)
        verifiers = [
            _observed("verifier", f"verifier-{number}", (*models.verifier(), *store))
            for number in range(shape.verifiers)
        ]
        drafters = [
            service_spec("drafter", f"drafter-{number}", (*arguments, *store, *_DRAIN))
            for number, arguments in enumerate(models.drafters())
        ]
        addresses = await supervisor.start(*(spec for spec, _ in verifiers), *drafters)
        peers = (
            *("--verifiers", ",".join(addresses[: shape.verifiers])),
            *("--drafters", ",".join(addresses[shape.verifiers :])),
        )
        sides = {
            side: [
                _observed("orchestrator", f"{side}-{number}", (*peers, *store, _FLAGS[side]))
                for number in range(shape.orchestrators)
            ]
            for side in SIDES
        }
        yield PrefixMesh(
            {
                side: await supervisor.start(*(spec for spec, _ in started))
                for side, started in sides.items()
            },
            [metrics for _, metrics in verifiers],
            {side: [metrics for _, metrics in started] for side, started in sides.items()},
            supervisor.kill,
        )


def _observed(role: str, name: str, arguments: Sequence[str]) -> tuple[ProcessSpec, str]:
    """Return a process, and the address of its metrics."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        metrics = f"127.0.0.1:{probe.getsockname()[1]}"
    return service_spec(role, name, (*arguments, "--metrics-address", metrics, *_DRAIN)), metrics
