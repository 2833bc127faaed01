"""The run: a mesh of real processes, many concurrent sessions, and the memory of each process."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import count

import psutil

from specmesh.bench.memory.samples import MemorySample, ProcessMemory, SampleLog
from specmesh.bench.memory.traffic import TrafficRequest, request
from specmesh.cli.local.mesh import LocalMesh
from specmesh.client import AsyncClient, SpecmeshError

CLIENT = "client"
"""The name of this process, which reads the answers with the SDK."""
NUM_SAMPLES = 2000
FINISHED, ABANDONED = "finished", "abandoned"
MAX_FAILED_SHARE = 0.01
"""Allowed share of requests that fail: a mesh that answers nothing has no reason to grow."""


@dataclass(slots=True)
class MemorySamples:
    """The measurements of a run."""

    samples: list[MemorySample] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)
    """Requests by outcome: finished, abandoned, or the name of the error."""

    @property
    def num_failed(self) -> int:
        """Return the number of requests that were neither answered nor abandoned."""
        return self.outcomes.total() - self.outcomes[FINISHED] - self.outcomes[ABANDONED]

    @property
    def is_answered(self) -> bool:
        """Return whether so many requests were answered that flat memory means something."""
        return self.num_failed <= MAX_FAILED_SHARE * self.outcomes.total()


class MemoryLoad:
    """Sends ``num_requests`` requests from concurrent sessions and samples every process."""

    def __init__(
        self,
        mesh: LocalMesh,
        client: AsyncClient,
        texts: Sequence[str],
        num_requests: int,
        progress: Callable[[MemorySample], None],
    ) -> None:
        self._processes = {name: psutil.Process(pid) for name, pid in mesh.pids.items()}
        self._processes[CLIENT] = psutil.Process(os.getpid())
        self._client = client
        self._texts = texts
        self._num_requests = num_requests
        self._every = max(1, num_requests // NUM_SAMPLES)
        self._log = SampleLog(list(self._processes), num_requests // self._every + 1)
        self._progress = progress
        self._numbers = count()
        self._num_done = 0
        self._began = time.monotonic()
        self.measured = MemorySamples()

    async def run(self, num_sessions: int) -> MemorySamples:
        """Return once all requests are answered. Raises NoSuchProcess if a process of the mesh
        died."""
        self._sample()
        async with asyncio.TaskGroup() as sessions:
            for _ in range(num_sessions):
                sessions.create_task(self._session())
        self.measured.samples = self._log.samples()
        return self.measured

    async def _session(self) -> None:
        for number in self._numbers:
            if number >= self._num_requests:
                return
            self.measured.outcomes[await self._outcome(request(number, self._texts))] += 1
            self._num_done += 1
            if self._num_done % self._every == 0:
                self._sample()

    async def _outcome(self, sent: TrafficRequest) -> str:
        stream = self._client.generate(sent.prompt, **sent.options)
        try:
            async with aclosing(stream):
                if sent.abandon_after is None:
                    await stream
                    return FINISHED
                num_chunks = 0
                async for _ in stream:
                    if num_chunks == sent.abandon_after:
                        return ABANDONED
                    num_chunks += 1
                return FINISHED
        except SpecmeshError as error:
            return type(error).__name__

    def _sample(self) -> None:
        held = {name: _held(process) for name, process in self._processes.items()}
        sample = MemorySample(self._num_done, time.monotonic() - self._began, held)
        self._log.append(sample)
        self._progress(sample)


def _held(process: psutil.Process) -> ProcessMemory:
    memory = process.memory_full_info()
    return ProcessMemory(resident=memory.rss, private=memory.uss)
