"""The cells: a strategy with a number of streams, of which a share is traced."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import psutil

from specmesh.bench.capacity.figures import RoundFigures, medians
from specmesh.bench.capacity.floor import relaying
from specmesh.bench.capacity.load import StreamLoad
from specmesh.bench.capacity.mesh import serving, supervisor
from specmesh.bench.capacity.placement import MODELS_AND_ORCHESTRATOR, CorePlan, Role
from specmesh.bench.capacity.rounds import Generators, Sides, measure_round
from specmesh.cli.local.cores import pinned_to
from specmesh.cli.local.process import StartError
from specmesh.tools.kit.processes import processes

_CONNECTIONS = 8
"""Generators, and thus connections, for each worker: the kernel gives a connection to any worker,
so that few would burden them unequally."""
_FEW = 8
"""Streams that no mesh refuses."""
_LEAST_ANSWERS = 4
"""Answers of a round, at least: few streams ask for several each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityGrid:
    """The values of each property of a cell, and the load."""

    strategies: Sequence[str]
    streams: Sequence[int]
    """Numbers of streams in ascending order."""
    tracing: Sequence[float]
    """Shares of answers that are traced."""
    workers: Sequence[int]
    """Numbers of orchestrator processes."""
    tokens: int
    """Length of each answer."""
    rounds: int
    acceptance: float
    through_gateway: bool = False
    """True if streams come through a gateway, over HTTP."""
    chunk_interval_ms: int = 0
    """Shortest time between two chunks of an answer."""

    @property
    def roles(self) -> Sequence[Role]:
        """Return the roles of the mesh."""
        gateway = (Role.GATEWAY,) if self.through_gateway else ()
        return (*MODELS_AND_ORCHESTRATOR, *gateway)

    @property
    def num_rounds(self) -> int:
        """Return the rounds of all cells, including the first one of each, which only warms up."""
        kinds = (self.strategies, self.streams, self.tracing, self.workers)
        return math.prod(map(len, kinds)) * (self.rounds + 1)

    def num_generators(self, cores: CorePlan) -> int:
        """Return the number of processes that read streams."""
        most = max(self.workers)
        return cores.num_generators if most == 1 else max(cores.num_generators, _CONNECTIONS * most)

    def loads(self, strategy: str) -> list[StreamLoad]:
        """Return the loads of a round for each number of streams."""
        return [
            StreamLoad(
                strategy=strategy,
                streams=streams,
                answers=math.ceil(_LEAST_ANSWERS / streams),
                tokens=self.tokens,
            )
            for streams in self.streams
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityCell:
    """The figures of a cell: medians over its rounds, and its answers that failed, by reason."""

    load: StreamLoad
    tracing: float
    workers: int
    figures: RoundFigures
    kb_per_stream: float | None
    """Memory of the orchestrator for each stream more than in the smallest cell; None there."""
    failures: Counter[str]

    @property
    def floor_us_per_token(self) -> float:
        """Return what the relay would pay for as many messages as a token takes here."""
        return self.figures.floor_us_per_message * self.figures.messages_per_token


async def measure(
    grid: CapacityGrid,
    cores: CorePlan,
    directory: Path,
    report: Callable[[str], None],
    advance: Callable[[], None],
) -> list[CapacityCell]:
    """Measure all cells; ``advance`` is called after each round. Raises StartError, also if a
    process dies."""
    cells: list[CapacityCell] = []
    num_generators = grid.num_generators(cores)
    with pinned_to(cores.rest), processes(num_generators) as pool:
        generators = Generators(pool, num_generators)
        async with relaying(cores, supervisor(directory, report)) as floor:
            for share, strategy, workers in product(grid.tracing, grid.strategies, grid.workers):
                # A fresh one, because processes do not return memory.
                logs = directory / f"{strategy}-{share:g}-{workers}"
                logs.mkdir()
                running = supervisor(logs, report)
                kind = grid.acceptance, share, workers, cores, running, logs
                async with serving(
                    *kind,
                    through_gateway=grid.through_gateway,
                    chunk_interval_ms=grid.chunk_interval_ms,
                ) as mesh:
                    sides = Sides(mesh, floor, generators)
                    cells += await _of_mesh(sides, grid, strategy, share, workers, advance)
    return cells


async def _of_mesh(
    sides: Sides,
    grid: CapacityGrid,
    strategy: str,
    tracing: float,
    workers: int,
    advance: Callable[[], None],
) -> list[CapacityCell]:
    cells: list[CapacityCell] = []
    loads = grid.loads(strategy)
    # Until an orchestrator knows how fast answers proceed, it lets few wait and refuses the others.
    await _round(sides, replace(loads[0], streams=min(_FEW, loads[0].streams)))
    for load in loads:
        rounds: list[RoundFigures] = []
        failures: Counter[str] = Counter()
        for _ in range(grid.rounds + 1):
            figures, failed = await _round(sides, load)
            rounds.append(figures)
            failures += failed
            advance()
        found = medians(rounds[1:])  # The first round opens connections and fills caches.
        smallest = cells[0] if cells else None
        cells.append(
            CapacityCell(
                load=load,
                tracing=tracing,
                workers=workers,
                figures=found,
                kb_per_stream=None
                if smallest is None
                else (found.resident_kb - smallest.figures.resident_kb)
                / (load.streams - smallest.load.streams),
                failures=failures,
            )
        )
    return cells


async def _round(sides: Sides, load: StreamLoad) -> tuple[RoundFigures, Counter[str]]:
    try:
        return await measure_round(sides, load)
    except (ProcessLookupError, psutil.NoSuchProcess) as gone:
        raise StartError(f"a process of the mesh died: {gone}") from None
