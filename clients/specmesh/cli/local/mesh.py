"""A mesh of real processes on this machine."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Self

from specmesh.cli.local.cores import Placement, available, place
from specmesh.cli.local.logs import serving_address
from specmesh.cli.local.process import PORT, ProcessSpec
from specmesh.cli.local.redis import redis_spec
from specmesh.cli.local.supervisor import Supervisor

DRAFTER_BACKENDS = ("ngram", "prompt-lookup", "random")
"""Drafters without a model of their own; they borrow the target's tokenizer."""

_START_TIMEOUT_S = 300.0
_KILL_AFTER_DRAIN_S = 3.0
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshOptions:
    """What the mesh is made of."""

    target: str
    """Folder or Hugging Face id of the target."""
    drafter: str
    """The same for the drafter, or one of DRAFTER_BACKENDS."""
    num_verifiers: int = 1
    threads: int = 1
    """Threads of each process that runs a model."""
    strategy: str = "speculative"
    lookahead: int = 4
    port: int = 0
    """Of the orchestrator; 0 takes any free one."""
    redis_url: str | None = None
    """A Redis that runs already; by default the mesh starts one."""
    drain_s: float = 5.0
    environment: Mapping[str, str] = field(default_factory=dict)
    """Given to every process, in addition to this one's own."""


class LocalMesh:
    """Runs while an ``async with`` block runs; a process that dies in it is started anew.

    ``address`` is the orchestrator's; ``directory`` gets a log for each process.
    Entering raises StartError if a process can't be started. If this process is killed, all
    others die with it (on Linux).
    """

    def __init__(
        self, options: MeshOptions, directory: Path, report: Callable[[str], None]
    ) -> None:
        self.address = ""
        self._options = options
        self._placement = place(available(), options.num_verifiers, options.threads)
        self._exit_stack = AsyncExitStack()
        self._supervisor = Supervisor(
            directory,
            start_timeout_s=_START_TIMEOUT_S,
            stop_timeout_s=options.drain_s + _KILL_AFTER_DRAIN_S,
            report=report,
        )

    @property
    def placement(self) -> Placement:
        """Which process runs on which cores."""
        return self._placement

    @property
    def pids(self) -> dict[str, int]:
        """Process ids by name: redis, verifier-0, verifier-1, drafter, orchestrator."""
        return self._supervisor.pids

    @property
    def addresses(self) -> dict[str, str]:
        """Where everything listens, by name, in the order it was started."""
        return self._supervisor.addresses

    def kill(self) -> None:
        """End all processes at once; leaving the block is then a matter of a moment."""
        self._supervisor.kill()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            # Not in the directory of the logs, for a socket's path must be short.
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
        common = ("--redis-url", redis_url, "--drain-seconds", f"{options.drain_s:g}")
        *verifiers, drafter = await self._supervisor.start(
            *(
                self._verifier(f"verifier-{number}", cores.verifiers[number], common)
                for number in range(options.num_verifiers)
            ),
            self._drafter(common),
        )
        orchestrator = self._orchestrator(verifiers, drafter, common)
        (self.address,) = await self._supervisor.start(orchestrator)

    def _verifier(self, name: str, cores: frozenset[int], common: tuple[str, ...]) -> ProcessSpec:
        model = ("--model", self._options.target, "--threads", str(self._options.threads))
        return self._service("verifier", name, cores, (*model, *common))

    def _drafter(self, common: tuple[str, ...]) -> ProcessSpec:
        options = self._options
        model: tuple[str, ...] = ("--model", options.drafter)
        if options.drafter in DRAFTER_BACKENDS:
            model = ("--backend", options.drafter, "--tokenizer", options.target)
        if options.drafter == "ngram":
            model = (*model, "--corpus", "stdlib")
        arguments = (*model, "--threads", str(options.threads), *common)
        return self._service("drafter", "drafter", self._placement.drafter, arguments)

    def _orchestrator(
        self, verifiers: list[str], drafter: str, common: tuple[str, ...]
    ) -> ProcessSpec:
        options = self._options
        peers = ("--verifiers", ",".join(verifiers), "--drafters", drafter)
        strategy = ("--strategy", options.strategy, "--lookahead", str(options.lookahead))
        arguments = (*peers, *strategy, *common)
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
        threads = {variable: str(self._options.threads) for variable in _THREAD_VARIABLES}
        return ProcessSpec(
            name=name,
            command=(
                *(sys.executable, "-m", f"specmesh.{role}"),
                *("--host", "127.0.0.1", "--port", port, "--name", name),
                *arguments,
            ),
            ready=serving_address,
            environment={**threads, **self._options.environment},
            cores=cores,
        )
