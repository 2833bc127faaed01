"""The rooms of the orchestrators, the queue of the verifier, and the memory of all processes, read
while the mesh is loaded."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import aiohttp
import psutil

from specmesh.bench.overload.mesh import OverloadMesh

INTERVAL_S = 0.5
"""Interval between two scrapes, each of which costs a process some milliseconds."""
_TIMEOUT_S = 5.0
_ROOM = "specmesh_requests_room"
_QUEUE = "specmesh_engine_queue_depth"


@dataclass(frozen=True, slots=True)
class GaugeSample:
    """The room of each orchestrator, the calls that wait at the verifier, and the resident memory
    of each process in MB (10^6 bytes)."""

    at_s: float
    """Times are by the monotonic clock."""
    rooms: tuple[int, ...]
    queue: int
    memory_mb: Mapping[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class GaugeLog:
    """The samples of a run in order."""

    samples: list[GaugeSample] = field(default_factory=list)

    def at(self, at_s: float) -> GaugeSample:
        """Return the sample that was taken closest to ``at_s``."""
        return min(self.samples, key=lambda each: abs(each.at_s - at_s))

    @property
    def peak_rooms(self) -> tuple[int, ...]:
        """The largest room of each orchestrator."""
        return tuple(map(max, zip(*(each.rooms for each in self.samples), strict=True)))

    @property
    def peak_queue(self) -> int:
        """The most calls that waited at the verifier."""
        return max(each.queue for each in self.samples)


@asynccontextmanager
async def watched(mesh: OverloadMesh) -> AsyncIterator[GaugeLog]:
    """Sample ``mesh`` while the block runs; the first sample is taken before it."""
    log = GaugeLog()
    timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        log.samples.append(await _sample(session, mesh))
        sampling = asyncio.create_task(_sample_all(session, mesh, log))
        try:
            yield log
        finally:
            sampling.cancel()
            with suppress(asyncio.CancelledError):
                await sampling


async def _sample_all(session: aiohttp.ClientSession, mesh: OverloadMesh, log: GaugeLog) -> None:
    while True:
        await asyncio.sleep(INTERVAL_S)
        # A busy process may be late, and one that was started anew is not there for a moment.
        with suppress(TimeoutError, aiohttp.ClientError, psutil.Error):
            log.samples.append(await _sample(session, mesh))


async def _sample(session: aiohttp.ClientSession, mesh: OverloadMesh) -> GaugeSample:
    at_s = time.monotonic()
    *rooms, queue = await asyncio.gather(
        *(_gauge(session, each, _ROOM) for each in mesh.orchestrator_metrics),
        _gauge(session, mesh.verifier_metrics, _QUEUE),
    )
    return GaugeSample(at_s, tuple(rooms), queue, _memory_mb(mesh))


def _memory_mb(mesh: OverloadMesh) -> dict[str, float]:
    return {
        name: round(psutil.Process(pid).memory_info().rss / 1e6, 1)
        for name, pid in mesh.pids().items()
    }


async def _gauge(session: aiohttp.ClientSession, address: str, name: str) -> int:
    async with session.get(f"http://{address}/metrics") as response:
        response.raise_for_status()
        return gauge(await response.text(), name)


def gauge(text: str, name: str) -> int:
    """Return the value of the gauge ``name`` in the text format of Prometheus; 0 if it is
    missing."""
    found = re.search(rf"^{name}(?:{{.*}})? (\S+)$", text, re.MULTILINE)
    return 0 if found is None else round(float(found[1]))
