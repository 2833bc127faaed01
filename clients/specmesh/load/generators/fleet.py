"""A fleet of generator processes that share one workload."""

from __future__ import annotations

import asyncio
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from specmesh.load.generators.generator import Chunks, WorkloadPart
from specmesh.load.generators.messages import (
    LENGTH_BYTES,
    Assignment,
    Message,
    Ready,
    Start,
    Stop,
    WorkerBroken,
    WorkerProgress,
    WorkerResult,
    packed,
    unpacked,
)
from specmesh.load.transports.observation import Observation
from specmesh.load.transports.transport import RequestFailed, ServerAddress
from specmesh.load.workload.plan import Workload

_AHEAD_S = 0.1
"""Delay from the readiness of the last worker to the start of the run, so that all start
together."""
_READY_S = 120.0
_STOP_S = 10.0

R = TypeVar("R")

Listener = Callable[[int, WorkerProgress], None]
"""A callback that receives the number of a worker and its progress."""


@dataclass(frozen=True, slots=True)
class Busy:
    """The CPU time that a worker had used ``at_s`` seconds after the start."""

    at_s: float
    cpu_s: float


@dataclass(frozen=True, slots=True)
class FleetSeen:
    """Everything that a fleet has observed; ``busy`` has a list for each worker."""

    observations: Sequence[Observation]
    chunks: Chunks
    busy: Sequence[Sequence[Busy]]
    began_unix_s: float
    interrupted: bool


class Fleet:
    """Runs a workload once."""

    def __init__(
        self, workload: Workload, door: ServerAddress, processes: int, *, traced: bool
    ) -> None:
        parts = (WorkloadPart(number, processes, traced) for number in range(processes))
        self._workers = [_Worker(Assignment(workload, door, part)) for part in parts]
        self._stopped = False

    def stop(self) -> None:
        """End the run early: cancel the requests under way, and return what was observed."""
        self._stopped = True
        for worker in self._workers:
            worker.tell(Stop())

    async def run(self, started: Callable[[float], None], listener: Listener) -> FleetSeen:
        """Send the workload. ``started`` is called with the monotonic time of the start.

        Raises RequestFailed if a worker can't connect or breaks.
        """
        try:
            await _together(worker.begin() for worker in self._workers)
            epoch_s = time.monotonic() + _AHEAD_S
            began_unix_s = time.time() + _AHEAD_S
            started(epoch_s)
            found = await _together(worker.carry_out(epoch_s, listener) for worker in self._workers)
        finally:
            await asyncio.gather(*(worker.end() for worker in self._workers))
        chunks = Chunks()
        for each in found:
            chunks.gaps.add(each.chunks.gaps)
            chunks.token_gaps.add(each.chunks.token_gaps)
            chunks.sizes += each.chunks.sizes
        observations = sorted(
            (seen for each in found for seen in each.observations), key=lambda seen: seen.due_s
        )
        busy = [worker.busy for worker in self._workers]
        return FleetSeen(observations, chunks, busy, began_unix_s, self._stopped)


async def _together(work: Iterable[Coroutine[Any, Any, R]]) -> list[R]:
    """Return the results of all; if one raises, cancel the others before raising."""
    tasks = [asyncio.create_task(each) for each in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Worker:
    """The parent's view of one worker process."""

    def __init__(self, assignment: Assignment) -> None:
        self.busy: list[Busy] = []
        self._assignment = assignment
        self._process: asyncio.subprocess.Process | None = None

    async def begin(self) -> None:
        """Start the process, and return once it is connected. Raises RequestFailed."""
        # By -P files in the current folder are not taken for modules.
        command = (sys.executable, "-P", "-m", "specmesh.load.generators.worker")
        self._process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
        self.tell(self._assignment)
        try:
            async with asyncio.timeout(_READY_S):
                message = await self._hear()
        except TimeoutError:
            raise RequestFailed(
                "GENERATOR", f"a generator process was not ready after {_READY_S:g} s"
            ) from None
        assert isinstance(message, Ready), message

    async def carry_out(self, epoch_s: float, listener: Listener) -> WorkerResult:
        """Let it send its part of the workload, and return its result. Raises RequestFailed."""
        self.tell(Start(epoch_s))
        while True:
            message = await self._hear()
            if isinstance(message, WorkerResult):
                return message
            assert isinstance(message, WorkerProgress), message
            self.busy.append(Busy(message.at_s, message.cpu_s))
            listener(self._assignment.part.number, message)

    def tell(self, message: Message) -> None:
        """Send it a message, if it runs."""
        if self._process is not None and self._process.returncode is None:
            assert self._process.stdin is not None
            self._process.stdin.write(packed(message))

    async def end(self) -> None:
        """Wait for its end; after ``_STOP_S`` seconds, kill it."""
        process = self._process
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(_STOP_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()

    async def _hear(self) -> Message:
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            length = await self._process.stdout.readexactly(LENGTH_BYTES)
            data = await self._process.stdout.readexactly(int.from_bytes(length, "big"))
        except asyncio.IncompleteReadError:
            status = await self._process.wait()
            raise RequestFailed("GENERATOR", f"a generator process exited with {status}") from None
        message = unpacked(data)
        if isinstance(message, WorkerBroken):
            raise RequestFailed(message.reason, message.message)
        return message
