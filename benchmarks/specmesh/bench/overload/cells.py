"""The runs: the capacity of a closed loop, and then more and more of it as an open load."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from specmesh.bench.overload.gauges import watched
from specmesh.bench.overload.mesh import DOORS, OverloadMesh
from specmesh.load.generators.generator import Generator, WorkloadPart, monotonic_since
from specmesh.load.results.histograms import percentile_of
from specmesh.load.runs.conduct import FinishedRun, RunPlan, conduct
from specmesh.load.transports.observation import Observation, RequestOutcome
from specmesh.load.transports.transport import ServerAddress
from specmesh.load.workload.arrivals import Arrivals, Poisson, Users
from specmesh.load.workload.conversations import Synthetic
from specmesh.load.workload.lengths import ConstantLength
from specmesh.load.workload.plan import RunLength, RunPhase, Workload
from specmesh.load.workload.variations import Variation

LEAST_SHARE = 0.9
"""The share of the capacity that must be answered at any load at or above it."""
MAX_REFUSED_MS = 100.0
"""Time within which 99 in 100 refusals must come."""
SETTLED_S = 10.0
"""Time after a load within which rooms must be as large as before."""
WAITED_S = 1.0
"""A refusal that takes longer than this breaks a promise: the request had been let in to wait."""
MOST_REPEATED = 32
"""The most answers of each load that are asked for again after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OverloadLoad:
    """The requests of every run."""

    users: int
    """Users of the closed loop that measures the capacity."""
    factors: Sequence[float]
    """Open loads, as multiples of the capacity."""
    prompt_tokens: int
    output_tokens: int
    warm_up_s: float
    duration_s: float
    settle_s: float = SETTLED_S
    seed: int = 0

    def workload(self, arrivals: Arrivals | Users) -> Workload:
        """Return the workload of a run."""
        return Workload(
            arrivals=arrivals,
            conversations=Synthetic(prompt_tokens=ConstantLength(self.prompt_tokens)),
            extent=RunLength(warm_up_s=self.warm_up_s, duration_s=self.duration_s),
            variations=(Variation(),),
            output_tokens=ConstantLength(self.output_tokens),
            ignore_end=True,
            seed=self.seed,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OverloadCell:
    """One open load. Rates are per second of the measured time."""

    door: str
    factor: float
    capacity: float
    """Answers of the closed loop through the same door."""
    offered: float
    goodput: float
    """Answers that ended in the measured time."""
    refused_share: float
    refused_p50_ms: float | None
    refused_p99_ms: float | None
    """None if nothing was refused."""
    accepted_failed: int
    """Requests that failed after they had been accepted, or had to wait for their refusal."""
    rooms_before: Sequence[int]
    rooms_peak: Sequence[int]
    rooms_after: Sequence[int]
    """Room of each orchestrator; the last ``settle_s`` after the load."""
    queue_peak: int
    """Most calls that waited at the verifier."""
    lag_p99_ms: float
    """The delay with which the generator sent requests: what the machine itself holds up."""
    num_repeated: int
    """Answers that the mesh was asked for again after the load."""
    num_changed: int
    """Those of them that then had another text, or none."""
    memory_mb: Mapping[str, tuple[float, float]]
    """Resident memory of each process halfway through the measured time and at the end of it, in
    MB (10^6 bytes)."""

    @property
    def share(self) -> float:
        """Goodput as a share of the capacity, or of what was offered if that was less."""
        return self.goodput / max(1e-9, min(self.capacity, self.offered))

    @property
    def is_good(self) -> bool:
        """Return whether the mesh did what it should under overload."""
        return (
            self.share >= LEAST_SHARE
            and (self.refused_p99_ms or 0.0) <= MAX_REFUSED_MS
            and not self.accepted_failed
            and not self.num_changed
            and list(self.rooms_after) == list(self.rooms_before)
        )


async def measure(
    mesh: OverloadMesh, load: OverloadLoad, report: Callable[[str], None]
) -> list[OverloadCell]:
    """Run all loads through each door. Raises RequestFailed if the mesh can't be reached."""
    cells = []
    for door in DOORS:
        address = mesh.door(door)
        report(f"{door}: {load.users} users")
        closed = await _conduct(address, load, Users(load.users))
        capacity = closed.result.throughput.answered_per_s
        report(f"{door}: {capacity:.1f} answers per second")
        await asyncio.sleep(load.settle_s)
        for factor in load.factors:
            report(f"{door}: {factor:g} times the capacity")
            cells.append(await _cell(mesh, load, door, factor, capacity))
    return cells


async def _cell(
    mesh: OverloadMesh, load: OverloadLoad, door: str, factor: float, capacity: float
) -> OverloadCell:
    async with watched(mesh) as gauges:
        before = gauges.samples[0].rooms
        run = await _conduct(mesh.door(door), load, Poisson(factor * capacity))
        ended_s = time.monotonic() - _since_load(run.seen.observations, load)
        settled_s = ended_s + load.settle_s
        await asyncio.sleep(max(0.0, settled_s - time.monotonic()))
        await asyncio.sleep(1.0)  # until the next sample
    changed = await _changed(run)
    halfway = gauges.at(ended_s - load.duration_s / 2).memory_mb
    at_end = gauges.at(ended_s).memory_mb
    extent = run.plan.workload.extent
    measured = [
        each for each in run.seen.observations if extent.phase(each.due_s) is RunPhase.MEASURED
    ]
    refused = [each for each in measured if is_refused(each)]
    lag = run.result.generator.lag_ms
    refused_ms = [each.e2e_s * 1e3 for each in refused]
    return OverloadCell(
        door=door,
        factor=factor,
        capacity=capacity,
        offered=run.result.throughput.offered_per_s,
        goodput=run.result.throughput.answered_per_s,
        refused_share=len(refused) / max(1, len(measured)),
        refused_p50_ms=percentile_of(refused_ms, 50) if refused_ms else None,
        refused_p99_ms=percentile_of(refused_ms, 99) if refused_ms else None,
        accepted_failed=num_broken_promises(run.seen.observations),
        rooms_before=before,
        rooms_peak=gauges.peak_rooms,
        rooms_after=gauges.at(settled_s).rooms,
        queue_peak=gauges.peak_queue,
        lag_p99_ms=lag.p99 if lag else 0.0,
        num_repeated=len(changed),
        num_changed=sum(changed),
        memory_mb={name: (halfway[name], at_end[name]) for name in halfway if name in at_end},
    )


async def _changed(run: FinishedRun) -> list[bool]:
    """Ask again, one after the other, for some of the answers that were given; return for each
    whether its text is another one now, or missing."""
    answered = [each for each in run.seen.observations if each.outcome is RequestOutcome.ANSWERED]
    again: list[Observation] = []
    async with run.plan.door.open() as transport:
        part = WorkloadPart(0, 1, traced=False)
        now = monotonic_since(0.0)
        generator = Generator(run.plan.workload, part, transport, again.append, now)
        chosen = answered[:: max(1, ceil(len(answered) / MOST_REPEATED))]
        for each in chosen:
            await generator.ask_again(each.conversation)
    pairs = zip(chosen, again, strict=True)
    return [before.text_digest != after.text_digest for before, after in pairs]


def _since_load(observations: Sequence[Observation], load: OverloadLoad) -> float:
    """Return the time from the end of a load to the end of its last request."""
    last_s = max((each.ended_s for each in observations), default=0.0)
    return max(0.0, last_s - load.warm_up_s - load.duration_s)


async def _conduct(
    door: ServerAddress, load: OverloadLoad, arrivals: Arrivals | Users
) -> FinishedRun:
    return await conduct(RunPlan(workload=load.workload(arrivals), door=door))


def is_refused(seen: Observation) -> bool:
    """Return whether a request was refused for lack of room, before anything was answered."""
    failed = seen.outcome is RequestOutcome.FAILED
    return failed and seen.reason.upper() == "OVERLOADED" and not seen.num_chunks


def num_broken_promises(observations: Iterable[Observation]) -> int:
    """Return how many requests failed that had been accepted: to be answered, or to wait."""
    failed = (each for each in observations if each.outcome is RequestOutcome.FAILED)
    return sum(not is_refused(each) or each.e2e_s > WAITED_S for each in failed)
