"""The mesh under test: several processes of every role, connected by links that can break."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Self

from specmesh.bench.chaos.links import Links
from specmesh.bench.chaos.plan import CLIENT, REDIS, REPLICAS, MeshShape, link
from specmesh.cli.local.logs import serving_address
from specmesh.cli.local.models import Models
from specmesh.cli.local.process import ProcessSpec
from specmesh.cli.local.redis import redis_spec
from specmesh.cli.local.service import service_spec
from specmesh.cli.local.supervisor import Supervisor

_DRAIN_S = 3.0
_START_TIMEOUT_S = 120.0
_FLAGS = {"verifier": "--verifiers", "drafter": "--drafters", "confidence": "--confidence"}
"""The orchestrator's flag for the addresses of each role."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The models and processes of the mesh. ``persistent`` says that Redis keeps its data on
    disk."""

    models: Models
    heads: Sequence[str]
    """Arguments that give a verifier heads; every second verifier gets them."""
    shape: MeshShape
    persistent: bool
    directory: Path
    """Folder of logs and of Redis's data."""
    report: Callable[[str], None]


class ChaosMesh:
    """A mesh that runs during an ``async with`` block.

    Clients reach the orchestrators at ``addresses``; ``redis_url`` bypasses the links and their
    faults. Entering raises StartError if a process can't be started.
    """

    def __init__(self, setup: Setup) -> None:
        self.addresses: list[str] = []
        self.redis_url = ""
        self.links: Links
        self._setup = setup
        self._exit_stack = AsyncExitStack()
        self._supervisor = Supervisor(
            setup.directory,
            start_timeout_s=_START_TIMEOUT_S,
            # Answers under way no longer matter when the mesh ends.
            stop_timeout_s=0.0,
            report=setup.report,
        )

    @property
    def shape(self) -> MeshShape:
        """Return the number of processes of each role."""
        return self._setup.shape

    def send(self, process: str, number: signal.Signals) -> None:
        """Send a process a signal, if it runs."""
        self._supervisor.send(process, number)

    async def end_and_restart(self, process: str, number: signal.Signals, after_s: float) -> None:
        """End a process, restart it ``after_s`` later, and return when it serves."""
        await self._supervisor.end_and_restart(process, number, after_s)

    def kill(self) -> None:
        """Kill all processes immediately, so that leaving the block is quick."""
        self._supervisor.kill()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            sockets = stack.enter_context(TemporaryDirectory(prefix="specmesh-redis-"))
            stack.push_async_callback(self._supervisor.stop)
            await self._start(Path(sockets) / "redis.sock", stack)
            self._exit_stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._exit_stack.aclose()

    async def _start(self, socket: Path, stack: AsyncExitStack) -> None:
        kept = self._setup.directory if self._setup.persistent else None
        self.redis_url, control = await self._supervisor.start(
            redis_spec(socket, directory=kept), _proxy_spec()
        )
        self.links = await Links.connect(control)
        stack.callback(self.links.close)
        redis = f"unix:{socket}"
        url = f"redis://{await self.links.open(link(REPLICAS, REDIS), redis)}"
        specs = self._replicas(("--redis-url", url))
        addresses = await self._supervisor.start(*specs)
        by_name = {spec.name: each for spec, each in zip(specs, addresses, strict=True)}
        orchestrators = [
            await self._orchestrator(name, by_name, redis)
            for name in self._setup.shape.names("orchestrator")
        ]
        for spec, address in zip(
            orchestrators, await self._supervisor.start(*orchestrators), strict=True
        ):
            self.addresses.append(await self.links.open(link(CLIENT, spec.name), address))

    def _replicas(self, store: Sequence[str]) -> list[ProcessSpec]:
        models, shape = self._setup.models, self._setup.shape
        drafters = models.drafters()
        arguments: dict[str, Sequence[Sequence[str]]] = {
            "verifier": [
                (*models.verifier(), *(() if n % 2 else self._setup.heads), *store)
                for n in range(shape.verifiers)
            ],
            "drafter": [(*drafters[n % len(drafters)], *store) for n in range(shape.drafters)],
            "confidence": [()] * shape.confidence,
        }
        return [
            service_spec(role, name, (*own, *_DRAIN))
            for role in _FLAGS
            for name, own in zip(shape.names(role), arguments[role], strict=True)
        ]

    async def _orchestrator(
        self, name: str, replicas: Mapping[str, str], redis: str
    ) -> ProcessSpec:
        """Return an orchestrator with its own links to Redis and to ``replicas``, which are
        addresses by name."""
        listed: list[str] = []
        for role, flag in _FLAGS.items():
            links = [
                await self.links.open(link(name, peer), replicas[peer])
                for peer in self._setup.shape.names(role)
            ]
            listed += (flag, ",".join(links))
        url = f"redis://{await self.links.open(link(name, REDIS), redis)}"
        return service_spec("orchestrator", name, (*listed, "--redis-url", url, *_DRAIN))


_DRAIN = ("--drain-seconds", f"{_DRAIN_S:g}")


def _proxy_spec() -> ProcessSpec:
    return ProcessSpec(
        name="proxy",
        command=(sys.executable, "-P", "-m", "specmesh.bench.chaos.proxy"),
        ready=serving_address,
    )
