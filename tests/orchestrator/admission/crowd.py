"""A crowd of clients before orchestrators that share replicas, on a virtual clock.

A replica runs forwards one after the other. Each takes the calls that wait, up to its largest
batch, and lasts longer the more there are; once more answers are under way at it than its KV cache
holds, each call also computes its prefix again. An answer is calls in turn, with a draft before
each. The orchestrators' decisions are the real ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple, TypeVar

from tests.schedules.clock import VirtualLoop

from specmesh.inference.model import ForwardSize
from specmesh.orchestrator.admission.controller import Admission
from specmesh.orchestrator.admission.entrance import Entrance
from specmesh.orchestrator.admission.room import Spent
from specmesh.serving.errors import ResourceExhaustedStatus
from specmesh.verifier.worthwhile_calls import WorthwhileCalls

TOKENS_PER_CALL = 3
TIMEOUT_S = 60.0
"""Then a client has gone."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The properties of replicas; times are in seconds."""

    fixed_s: float = 0.02
    per_call_s: float = 0.004
    max_batch: int = 64
    kv_answers: int = 48
    prefix_s: float = 0.02
    draft_s: float = 0.02


class Call(NamedTuple):
    came_at: float
    done: asyncio.Future[Spent]


class Replica:
    """Runs calls together."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.waiting: list[Call] = []
        self.num_answers = 0
        self.most_waiting = 0
        self._worthwhile_calls = WorthwhileCalls()
        self._arrival = asyncio.Event()
        self._work = asyncio.ensure_future(self._run())

    async def verify(self) -> Spent:
        """Queue a call and return the time that it took."""
        call = Call(now(), asyncio.get_running_loop().create_future())
        self.waiting.append(call)
        self.most_waiting = max(self.most_waiting, len(self.waiting))
        self._arrival.set()
        return await call.done

    def stop(self) -> None:
        self._work.cancel()

    async def _run(self) -> None:
        machine = self.machine
        while True:
            await self._arrival.wait()
            batch = self.waiting[: machine.max_batch]
            del self.waiting[: len(batch)]
            if not self.waiting:
                self._arrival.clear()
            began = now()
            evicted = max(0.0, 1 - machine.kv_answers / max(1, self.num_answers))
            each_s = machine.per_call_s + evicted * machine.prefix_s
            await asyncio.sleep(machine.fixed_s + len(batch) * each_s)
            forward_ms = (now() - began) * 1e3
            worthwhile = self._worthwhile_calls.learn(ForwardSize(len(batch)), forward_ms)
            calls = len(batch), worthwhile
            for call in batch:
                if not call.done.done():
                    queue_ms = (began - call.came_at) * 1e3
                    call.done.set_result(Spent(queue_ms, forward_ms, 1.0, *calls))


@dataclass(slots=True)
class Seen:
    """The answers and refusals that clients saw."""

    ended_at: list[float] = field(default_factory=list)
    refused_after_s: list[float] = field(default_factory=list)
    num_late: int = 0
    """Answers that came after their client had gone."""

    def goodput(self, from_s: float, until_s: float) -> float:
        """Answers per second."""
        return sum(from_s <= at < until_s for at in self.ended_at) / (until_s - from_s)


class OpenDoor(Admission):
    """Lets everybody in."""

    def most(self, *_: object, **__: object) -> int:
        return 10**9


class Crowd:
    """Clients before orchestrators, each of which uses all replicas. They ask for as many tokens as
    they get, or for up to ``limit``. With an ``open_door`` everybody is let in."""

    def __init__(
        self,
        machine: Machine,
        num_replicas: int,
        num_orchestrators: int,
        num_tokens: Sequence[int],
        *,
        limit: int | None = None,
        open_door: bool = False,
    ) -> None:
        self.replicas = [Replica(machine) for _ in range(num_replicas)]
        self.seen = Seen()
        self.rng = Random(7)
        self.num_tokens = num_tokens
        self._limit = limit
        made = OpenDoor if open_door else Admission
        self.admissions = [made() for _ in range(num_orchestrators)]
        self.entrances = [
            Entrance(each, lambda: num_replicas, self.rng.random) for each in self.admissions
        ]
        self._turn = 0
        self.tasks: set[asyncio.Task[None]] = set()

    @property
    def rooms(self) -> list[int]:
        """The room of each orchestrator."""
        return [each.room(now()) for each in self.entrances]

    def come(self) -> asyncio.Task[None]:
        """Let a client come to the next orchestrator."""
        self._turn = (self._turn + 1) % len(self.entrances)
        task = asyncio.ensure_future(self._ask(self._turn, self.rng.choice(self.num_tokens)))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def poisson(self, rate: float, seconds: float) -> None:
        """Let ``rate`` clients a second come, independently of each other."""
        until = now() + seconds
        while True:
            await asyncio.sleep(self.rng.expovariate(rate))
            if now() >= until:
                return
            self.come()

    async def closed(self, num_users: int, seconds: float) -> None:
        """Let users ask again as soon as they have their answer."""
        until = now() + seconds

        async def use() -> None:
            while now() < until:
                num_refused = len(self.seen.refused_after_s)
                await self.come()
                if len(self.seen.refused_after_s) > num_refused:
                    await asyncio.sleep(0.1)

        await asyncio.gather(*(use() for _ in range(num_users)))

    def stop(self) -> None:
        """End everything."""
        for replica in self.replicas:
            replica.stop()
        for task in self.tasks:
            task.cancel()

    async def _ask(self, number: int, num_tokens: int) -> None:
        admission, came_at = self.admissions[number], now()
        try:
            async with self.entrances[number].slot(came_at + TIMEOUT_S, resumed=False) as slot:
                slot.limit(self._limit or num_tokens)
                replica = min(self.replicas, key=lambda each: each.num_answers)
                replica.num_answers += 1
                try:
                    for _ in range(0, num_tokens, TOKENS_PER_CALL):
                        await asyncio.sleep(replica.machine.draft_s)
                        spent = await replica.verify()
                        admission.verified(len(self.replicas), spent, now())
                        slot.progressed(TOKENS_PER_CALL)
                finally:
                    replica.num_answers -= 1
        except ResourceExhaustedStatus:
            self.seen.refused_after_s.append(now() - came_at)
            return
        if now() - came_at > TIMEOUT_S:
            self.seen.num_late += 1
        else:
            self.seen.ended_at.append(now())


def now() -> float:
    return asyncio.get_running_loop().time()


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a virtual clock."""
    loop = VirtualLoop()
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(work)
    finally:
        asyncio.set_event_loop(None)
        loop.close()
