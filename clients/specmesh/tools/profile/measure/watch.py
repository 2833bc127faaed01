"""The speed of the cores during a measurement.

Cores that a machine shares with other machines are the hardware threads of fewer physical cores.
While another machine computes on the other thread of one, ours takes up to 1.7 times as long, for
seconds at a time, and no figure of the operating system reveals it. A fixed piece of work does.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Collection, Mapping
from contextlib import suppress
from statistics import fmean
from types import TracebackType
from typing import Self

from specmesh.cli.local.process import StartError
from specmesh.simulation.costs import MeshCosts

_PAUSE_S = 0.05
_WORK = 15_000
"""Number of additions, half a millisecond of Python."""


class CoreWatch:
    """A process that repeatedly times a fixed piece of work on the cores of each role. Without any
    cores no process is started. Entering raises StartError."""

    def __init__(self, cores: Mapping[str, Collection[int]]) -> None:
        self._cores = cores
        self._times: defaultdict[int, list[tuple[float, float]]] = defaultdict(list)
        """The time and the milliseconds taken, by core, in the order of measurement."""
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None

    @classmethod
    def of(cls, costs: MeshCosts) -> Self:
        """Create one for the cores of a mesh on this machine; without cores if the mesh is
        elsewhere."""
        return cls({role: cores.numbers for role, cores in costs.cores.items()})

    async def __aenter__(self) -> Self:
        numbers = sorted({number for own in self._cores.values() for number in own})
        if numbers:
            command = (sys.executable, "-P", "-m", __name__, *map(str, numbers))
            self._process = await asyncio.create_subprocess_exec(
                *command, stdout=asyncio.subprocess.PIPE
            )
            for _ in numbers:
                if not await self._read_one():
                    await self._end()
                    raise StartError(f"the process that watches cores {numbers} did not start")
            self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._process is not None and self._reading is not None:
            self._reading.cancel()
            with suppress(asyncio.CancelledError):
                await self._reading
            await self._end()

    async def _end(self) -> None:
        assert self._process is not None
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()

    @property
    def pid(self) -> int | None:
        """Return the id of the process that watches."""
        return None if self._process is None else self._process.pid

    def core_ms(self, began: float, ended: float) -> dict[str, float]:
        """Return the mean time of the work over the cores of each role between two times of the
        monotonic clock. If none was taken in between, the last one counts. Raises StartError if the
        watching process has ended."""
        if self._reading is not None and self._reading.done():
            raise StartError("the process that watches the cores has ended")
        return {
            role: fmean(self._of_core(number, began, ended) for number in own)
            for role, own in self._cores.items()
            if own
        }

    def _of_core(self, number: int, began: float, ended: float) -> float:
        own = self._times[number]
        within = [ms for at, ms in own if began <= at <= ended]
        return fmean(within) if within else own[-1][1]

    async def _read(self) -> None:
        while await self._read_one():
            pass

    async def _read_one(self) -> bool:
        assert self._process is not None
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if line:
            number, at, ms = line.split()
            self._times[int(number)].append((float(at), float(ms)))
        return bool(line)


def _watch(cores: Collection[int]) -> None:
    """Print a core's number, the time, and how long the work took there, until nobody reads it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # It ends with its reader.
    with suppress(BrokenPipeError):
        while True:
            for number in cores:
                os.sched_setaffinity(0, {number})
                print(number, time.monotonic(), _work_ms(), flush=True)  # noqa: T201 - to a pipe
            time.sleep(_PAUSE_S)


def _work_ms() -> float:
    """Return the time of the work in CPU time of this thread, which excludes others on the core."""
    began = time.thread_time_ns()
    total = 0
    for number in range(_WORK):
        total += number * number
    return (time.thread_time_ns() - began) / 1e6


if __name__ == "__main__":
    _watch([int(each) for each in sys.argv[1:]])
