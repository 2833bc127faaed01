"""One round: the streams of the mesh, and then as many of the relay, so that other work on the
machine affects both."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import aiohttp
import psutil

from specmesh.bench.capacity.figures import (
    Counters,
    Pauses,
    RoundFigures,
    ServedCalls,
    messages_per_token,
    most_at_once,
    per_call,
    per_token,
    served_by,
)
from specmesh.bench.capacity.floor import Floor
from specmesh.bench.capacity.load import StreamLoad, StreamsSeen, read_streams
from specmesh.bench.capacity.mesh import CapacityMesh
from specmesh.bench.capacity.placement import Role
from specmesh.load.results.histograms import Histogram
from specmesh.load.transports.transport import ServerAddress
from specmesh.tools.kit.processor_time import processor_s

_SAMPLE_S = 0.05
"""Interval between two looks at the orchestrator's memory."""


@dataclass(frozen=True, slots=True)
class Generators:
    """The processes that read streams."""

    pool: ProcessPoolExecutor
    count: int

    async def read(self, load: StreamLoad, door: ServerAddress) -> list[StreamsSeen]:
        """Read all streams of ``load``, each process its part of them."""
        loop, parts = asyncio.get_running_loop(), min(self.count, load.streams)
        return await asyncio.gather(
            *(
                loop.run_in_executor(self.pool, read_streams, load, door, part, parts)
                for part in range(parts)
            )
        )


@dataclass(frozen=True, slots=True)
class Sides:
    """A mesh and the relay, which take turns, and the processes that read the streams of both."""

    mesh: CapacityMesh
    floor: Floor
    generators: Generators


async def measure_round(sides: Sides, load: StreamLoad) -> tuple[RoundFigures, Counter[str]]:
    """Return the figures of a round, and the answers that failed by reason.

    Raises ProcessLookupError if a process has died.
    """
    mesh, generators = sides.mesh, sides.generators
    # A scrape takes some milliseconds, so it comes before the first look at the processor time and
    # after the last.
    served = await _served(mesh)
    before = Counters(processor_s=_processor_s(mesh), served=served)
    async with _peak_resident(mesh.pids[Role.ORCHESTRATOR]) as resident_bytes:
        seen = await generators.read(load, mesh.door)
    used_s = _processor_s(mesh)
    after = Counters(processor_s=used_s, served=await _served(mesh))
    floor_us = await sides.floor.us_per_message(generators.pool, load)
    tokens = sum(each.tokens for each in seen)
    seconds = max(each.ended_s for each in seen) - min(each.began_s for each in seen)
    figures = RoundFigures(
        tokens_per_s=tokens / seconds,
        us_per_token=per_token(before, after, tokens),
        us_per_call=per_call(before, after),
        messages_per_token=messages_per_token(
            before, after, sum(each.chunks for each in seen), tokens
        ),
        pauses=_pauses(seen),
        at_once=most_at_once([pair for each in seen for pair in each.intervals]),
        resident_kb=max(resident_bytes) / 1e3,
        floor_us_per_message=floor_us,
    )
    return figures, sum((each.failures for each in seen), Counter[str]())


def _processor_s(mesh: CapacityMesh) -> dict[Role, float]:
    return {role: sum(map(processor_s, pids)) for role, pids in mesh.pids.items()}


async def _served(mesh: CapacityMesh) -> dict[Role, ServedCalls]:
    """Return what each role has served. Raises ProcessLookupError."""
    try:
        async with aiohttp.ClientSession(raise_for_status=True) as session:
            return {
                role: await _scraped(session, mesh, role) for role in (Role.VERIFIER, Role.DRAFTER)
            }
    except aiohttp.ClientError as error:
        raise ProcessLookupError(f"a process does not tell its metrics: {error}") from error


async def _scraped(session: aiohttp.ClientSession, mesh: CapacityMesh, role: Role) -> ServedCalls:
    async with session.get(f"http://{mesh.metrics[role]}/metrics") as response:
        return served_by(role, await response.text())


def _pauses(seen: Sequence[StreamsSeen]) -> Pauses:
    gaps = Histogram()
    for each in seen:
        gaps.add(each.gaps)
    p50, p99, longest = (seconds * 1e3 for seconds in gaps.percentiles((50.0, 99.0, 100.0)))
    return Pauses(p50=p50, p99=p99, longest=longest)


@asynccontextmanager
async def _peak_resident(pids: Sequence[int]) -> AsyncIterator[list[int]]:
    """Look at the resident memory of processes while the block runs; yield their sums in bytes,
    which are there after it."""
    family = [psutil.Process(pid) for pid in pids]
    sizes: list[int] = []

    async def look() -> None:
        while True:
            sizes.append(sum(process.memory_info().rss for process in family))
            await asyncio.sleep(_SAMPLE_S)

    looking = asyncio.create_task(look())
    try:
        yield sizes
    finally:
        looking.cancel()
        with suppress(asyncio.CancelledError, psutil.NoSuchProcess):
            await looking
