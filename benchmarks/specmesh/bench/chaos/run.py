"""The run: it starts a mesh, runs streams and faults side by side, and judges every answer."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from specmesh.bench.chaos.answers import ChaosAnswer
from specmesh.bench.chaos.faults import FaultInjector
from specmesh.bench.chaos.judging.judge import Stored, judge
from specmesh.bench.chaos.judging.pairs import Pair
from specmesh.bench.chaos.judging.store import StoredSessions, Unreadable
from specmesh.bench.chaos.judging.truth import Truth
from specmesh.bench.chaos.load import ChaosLoad
from specmesh.bench.chaos.mesh import ChaosMesh, Setup
from specmesh.bench.chaos.plan import REDIS, FaultKind, MeshShape, schedule
from specmesh.bench.chaos.report import JudgedAnswer, MeshRun
from specmesh.bench.chaos.requests import ChaosRequest
from specmesh.bench.chaos.starvation import Watch
from specmesh.client import AsyncClient

GRACE_S = 45.0
"""Time that the answers under way at the end may still take."""
_STORE_TRIES = 20
_STORE_PAUSE_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class ChaosPlan:
    """The plan of a run: in one half Redis keeps its data, in the other it loses them."""

    duration_s: float
    streams: int
    seed: int
    pair: Pair
    longest: int
    """Length of the longest answer, in tokens."""
    shape: MeshShape = field(default_factory=MeshShape)


class Chaos:
    """One run, which adds its results to ``phases`` as it goes."""

    def __init__(self, plan: ChaosPlan, directory: Path, report: Callable[[str], None]) -> None:
        self.phases: list[MeshRun] = []
        self._plan = plan
        self._directory = directory
        self._report = report
        self._mesh: ChaosMesh | None = None

    def kill(self) -> None:
        """Kill the mesh immediately."""
        if self._mesh is not None:
            self._mesh.kill()

    async def run(self) -> int:
        """Run both phases; return 0. Raises StartError."""
        for number, persistent in enumerate((True, False)):
            phase = MeshRun(persistent)
            self.phases.append(phase)
            directory = self._directory / ("persistent" if persistent else "forgetful")
            directory.mkdir(parents=True)
            self._report(f"Redis {'keeps' if persistent else 'forgets'} what it holds")
            setup = Setup(
                models=self._plan.pair.models,
                heads=self._plan.pair.heads,
                shape=self._plan.shape,
                persistent=persistent,
                directory=directory,
                report=self._report,
            )
            async with ChaosMesh(setup) as mesh:
                self._mesh = mesh
                await self._run_phase(phase, number, mesh)
        return 0

    async def _run_phase(self, phase: MeshRun, number: int, mesh: ChaosMesh) -> None:
        duration_s = self._plan.duration_s / 2
        faults = schedule(2 * self._plan.seed + number, duration_s, self._plan.shape)
        store = StoredSessions(mesh.redis_url)
        try:
            async with AsyncClient(*mesh.addresses) as client, asyncio.TaskGroup() as group:
                truth = await self._plan.pair.truth(client, self._plan.longest)
                began_s = time.monotonic()
                carrying = FaultInjector(mesh, began_s)
                phase.faults = carrying.carried
                phase.watch = Watch(mesh.links, began_s)
                watching = group.create_task(phase.watch.run())
                breaking = group.create_task(carrying.carry_out(faults))
                load = ChaosLoad(client, began_s, _Judge(phase, truth, store).done)
                await load.run(self._requests(number), duration_s, GRACE_S)
                breaking.cancel()
                watching.cancel()
        finally:
            await store.aclose()

    def _requests(self, number: int) -> list[Iterator[ChaosRequest]]:
        return [self._requests_of(number, stream) for stream in range(self._plan.streams)]

    def _requests_of(self, number: int, stream: int) -> Iterator[ChaosRequest]:
        # Don't change this text: a seed must keep giving the same requests.
        rng = random.Random(f"asks {self._plan.seed} {number} {stream}")  # noqa: S311
        while True:
            yield self._plan.pair.draw(rng, self._plan.longest)


class _Judge:
    """Judges each answer once it has ended."""

    def __init__(self, phase: MeshRun, truth: Truth, store: StoredSessions) -> None:
        self._phase = phase
        self._truth = truth
        self._store = store

    async def done(self, answer: ChaosAnswer) -> None:
        stored = await self._stored(answer)
        verdict = judge(answer, self._truth, stored)
        self._phase.judged.append(JudgedAnswer(answer, verdict))

    async def _stored(self, answer: ChaosAnswer) -> Stored:
        """Return what the store holds of the answer, with retries while Redis is away."""
        tokens = None
        reached = False
        if answer.session_id and answer.num_prompt_tokens:
            for _ in range(_STORE_TRIES):
                try:
                    tokens = await self._store.generated(
                        answer.session_id, answer.num_prompt_tokens
                    )
                except Unreadable:
                    await asyncio.sleep(_STORE_PAUSE_S)
                else:
                    reached = True
                    break
        return Stored(tokens, durable=reached and not self._has_forgotten(answer))

    def _has_forgotten(self, answer: ChaosAnswer) -> bool:
        """Return whether a Redis without persistence ended after the answer began."""
        if self._phase.persistent:
            return False
        ending = {FaultKind.KILL, FaultKind.TERM}
        return any(
            each.fault.victim == REDIS
            and each.fault.kind in ending
            # Redis takes a moment to end.
            and (each.ended_s is None or each.ended_s + 10 > answer.began_s)
            for each in self._phase.faults
        )
