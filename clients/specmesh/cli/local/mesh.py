"""A mesh of separate processes on this machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Self

from specmesh.cli.local.cores import Placement, available, place
from specmesh.cli.local.models import Models, WaitingModels
from specmesh.cli.local.process import PORT, MissingPackage, ProcessSpec, StartError
from specmesh.cli.local.redis import redis_spec
from specmesh.cli.local.service import service_spec
from specmesh.cli.local.supervisor import Supervisor
from specmesh.cli.local.traces import TraceKeeping, sending_to

_START_TIMEOUT_S = 300.0
"""Time without any progress after which a start is given up."""
_KILL_AFTER_DRAIN_S = 3.0


class SamplingDefaults(StrEnum):
    """The sampling parameters of requests that leave them unset."""

    AUTO = "auto"
    """Use the parameters that the model's author recommends."""
    NONE = "none"
    """Sample from the model's plain distribution."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshOptions:
    """The processes of a local mesh, and their settings."""

    models: Models
    num_verifiers: int = 1
    num_confidence: int = 0
    """Number of replicas of the confidence service, which only the strategy filter uses."""
    calibration: Path | None = None
    """Calibration file of the confidence service for the model pair."""
    threads: int = 1
    """Number of threads of each process, for libraries with thread pools."""
    strategy: str = "auto"
    lookahead: int | None = None
    trees: Path | None = None
    """File of calibrated trees for the model pair."""
    port: int = 0
    """Port of the orchestrator; 0 takes any free one."""
    redis_url: str | None = None
    """URL of a running Redis; None starts one."""
    sampling_defaults: SamplingDefaults = SamplingDefaults.NONE
    drain_s: float = 5.0
    traces: TraceKeeping | None = None
    """The collection of traces; None collects none."""
    record_content: bool = False
    """True if traces record the texts of tokens."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of every process, in addition to this one's own."""


class LocalMesh:
    """A mesh that runs while its ``async with`` block does; processes that die are restarted.

    ``address`` is the orchestrator's; the log of each process is in ``directory``. Entering the
    block raises StartError if a process can't be started. On Linux, all processes die if this one
    is killed.
    """

    def __init__(
        self, options: MeshOptions, directory: Path, report: Callable[[str], None]
    ) -> None:
        self.address = ""
        self._redis_url = ""
        self._options = options
        self._report = report
        self._tracing: Mapping[str, str] = {}
        # Models that wait leave their cores to others, so the system places all processes.
        cores = () if isinstance(options.models, WaitingModels) else available()
        self._placement = place(cores, options.num_verifiers, options.threads)
        self._exit_stack = AsyncExitStack()
        self._supervisor = Supervisor(
            directory,
            start_timeout_s=_START_TIMEOUT_S,
            stop_timeout_s=options.drain_s + _KILL_AFTER_DRAIN_S,
            report=report,
        )

    @property
    def placement(self) -> Placement:
        """The placement of processes on cores."""
        return self._placement

    @property
    def pids(self) -> dict[str, int]:
        """Process ids by name: traces, redis, verifier-0, drafter, confidence-0, orchestrator."""
        return self._supervisor.pids

    @property
    def addresses(self) -> dict[str, str]:
        """Addresses of the processes by name, in the order of their start."""
        return self._supervisor.addresses

    def kill(self) -> None:
        """Kill all processes immediately, so that leaving the block does not wait."""
        self._supervisor.kill()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            # Not in the log directory: a socket's path has to be short.
            sockets = stack.enter_context(TemporaryDirectory(prefix="specmesh-redis-"))
            stack.push_async_callback(self._supervisor.stop)
            await self._start(Path(sockets) / "redis.sock")
            self._exit_stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._exit_stack.aclose()

    async def _start(self, redis_socket: Path) -> None:
        options, cores = self._options, self._placement
        redis_url = options.redis_url
        if redis_url is None:
            (redis_url,) = await self._supervisor.start(redis_spec(redis_socket, cores.rest))
        await self._start_collector()
        self._redis_url = redis_url
        common = ("--drain-seconds", f"{options.drain_s:g}")
        verifiers = [
            self._service(
                "verifier", f"verifier-{number}", own, (*options.models.verifier(), *common)
            )
            for number, own in enumerate(cores.verifiers)
        ]
        drafters = [
            self._service("drafter", name, cores.drafter, (*arguments, *common))
            for name, arguments in self._named_drafters()
        ]
        flags = () if options.calibration is None else ("--calibration", str(options.calibration))
        confidence = [
            # It shares the drafter's cores: one of the two always waits for the other.
            self._service("confidence", f"confidence-{number}", cores.drafter, (*flags, *common))
            for number in range(options.num_confidence)
        ]
        peers = {"--verifiers": verifiers, "--drafters": drafters, "--confidence": confidence}
        started = iter(await self._supervisor.start(*verifiers, *drafters, *confidence))
        addresses = {flag: list(islice(started, len(specs))) for flag, specs in peers.items()}
        (self.address,) = await self._supervisor.start(self._orchestrator(addresses, common))

    async def _start_collector(self) -> None:
        """Start the trace collector, if wanted. It starts before the services, so that it stops
        after them. If it fails to start, the mesh runs without traces."""
        if self._options.traces is None:
            return
        spec = self._options.traces.spec(self._placement.rest)
        try:
            (address,) = await self._supervisor.start(spec)
        except MissingPackage:
            raise
        except StartError as error:
            self._report(f"traces are not collected: {error}")
        else:
            self._tracing = sending_to(address, self._options.traces.keep)

    def _named_drafters(self) -> list[tuple[str, Sequence[str]]]:
        drafters = self._options.models.drafters()
        if len(drafters) == 1:
            return [("drafter", drafters[0])]
        return [(f"drafter-{number}", arguments) for number, arguments in enumerate(drafters)]

    def _orchestrator(
        self, peers: Mapping[str, Sequence[str]], common: tuple[str, ...]
    ) -> ProcessSpec:
        """Return the orchestrator of ``peers``, which are addresses by the flag that takes them."""
        options = self._options
        named = ((flag, ",".join(listed)) for flag, listed in peers.items() if listed)
        lists = [part for pair in named for part in pair]
        lookahead = () if options.lookahead is None else ("--lookahead", str(options.lookahead))
        trees = () if options.trees is None else ("--trees", str(options.trees))
        content = ("--record-content",) if options.record_content else ()
        # The check would complain that our own Redis persists nothing, which is intended.
        check = ("--redis-check", "off") if options.redis_url is None else ()
        defaults = ("--generation-config", options.sampling_defaults)
        chosen = ("--strategy", options.strategy, *defaults, *lookahead, *trees)
        arguments = (*lists, *chosen, *content, *check, *common)
        port = PORT if options.port == 0 else str(options.port)
        return self._service("orchestrator", "orchestrator", self._placement.rest, arguments, port)

    def _service(
        self,
        role: str,
        name: str,
        cores: frozenset[int],
        arguments: tuple[str, ...],
        port: str = PORT,
    ) -> ProcessSpec:
        options = self._options
        return service_spec(
            role,
            name,
            arguments,
            port=port,
            threads=options.threads,
            # Not as an argument: the URL may contain a password, which ps would show.
            environment={
                **self._tracing,
                **options.environment,
                "REDIS_URL": self._redis_url,
            },
            cores=cores,
        )
