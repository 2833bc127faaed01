"""Streams through two orchestrators while the primary of their Redis is lost.

Half of the streams begin at each orchestrator. Once all have tokens, the primary is killed or
frozen; once streams are stored again, the first orchestrator is killed, and its streams continue at
the other from what the new primary holds. All end some tokens later.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from specmesh.bench.chaos.judging.store import StoredSessions, Unreadable
from specmesh.bench.failover.group import SentinelGroup
from specmesh.bench.failover.report import FailoverOutcome, Spread
from specmesh.bench.failover.streams import RequestSeen, read, right_answer
from specmesh.cli.local.models import WaitingModels
from specmesh.cli.local.process import ProcessSpec
from specmesh.cli.local.service import service_spec
from specmesh.cli.local.supervisor import Supervisor
from specmesh.client import AsyncClient, Hooks
from specmesh.decoding.simulated.hashed import SimulatedTarget

_SEED = 18
_TARGET_MS = 4.0
_FIRST_TOKENS = 10
"""Number of tokens that each stream has when the primary is lost."""
_BACK_AFTER_S = 10.0
"""Time until a killed primary is restarted: longer than a second election of Sentinel, six seconds
after one in which each Sentinel has voted for itself. A primary that returns before that stays
primary."""
_START_TIMEOUT_S = 60.0
_LONGEST_RUN_S = 60.0
_STORE_TRIES = 50
_STORE_PAUSE_S = 0.1


class PrimaryLoss(StrEnum):
    """The ways to lose the primary."""

    KILLED = "killed"
    FROZEN = "frozen"


@dataclass(frozen=True, slots=True)
class FailoverPlan:
    """The plan of a run. ``tokens`` is how many each stream must get after the recovery."""

    loss: PrimaryLoss
    streams: int
    tokens: int
    down_after_ms: int
    """Silence after which Sentinel considers a server down."""


async def measure(
    plan: FailoverPlan, directory: Path, report: Callable[[str], None]
) -> FailoverOutcome:
    """Lose the primary once, and return the outcome. Raises StartError."""
    target = SimulatedTarget(_SEED)
    async with AsyncExitStack() as stack:
        group = SentinelGroup(directory, plan.down_after_ms, report)
        supervisor = Supervisor(
            directory, start_timeout_s=_START_TIMEOUT_S, stop_timeout_s=0.0, report=report
        )
        stack.push_async_callback(supervisor.stop)
        await asyncio.gather(stack.enter_async_context(group), _start_verifier(supervisor))
        addresses = await _start_orchestrators(supervisor, group.url)
        store = StoredSessions(group.url)
        stack.push_async_callback(store.aclose)
        run = _Run(plan, group, supervisor)
        hooks = Hooks(on_resume=lambda call: run.resumed.add(call.session_id))
        clients = [
            await stack.enter_async_context(AsyncClient(*addresses[::order], hooks=hooks))
            for order in (1, -1)
        ]
        await run.stream(clients)
        right = [right_answer(target, seen.prompt, len(seen.token_ids)) for seen in run.seen]
        lost = [await _lost(store, seen, target) for seen in run.seen]
        return _outcome(run, right, [each for each in lost if each])


class _Run:
    """The streams of one run, and the faults meanwhile."""

    def __init__(self, plan: FailoverPlan, group: SentinelGroup, supervisor: Supervisor) -> None:
        self.plan = plan
        self.seen: list[RequestSeen] = []
        self.resumed: set[str] = set()
        """Sessions that continued after their stream broke."""
        self.failover_s = 0.0
        """Time from the loss of the primary until another server takes writes."""
        self._group = group
        self._supervisor = supervisor
        self._changed = asyncio.Event()

    async def stream(self, clients: Sequence[AsyncClient]) -> None:
        """Read all answers until the primary and an orchestrator were lost and all streams have
        recovered."""
        for number in range(self.plan.streams):
            self.seen.append(RequestSeen((number + 1, number + 2)))
        reading = [
            asyncio.create_task(read(clients[number % len(clients)], seen, self._changed))
            for number, seen in enumerate(self.seen)
        ]
        try:
            async with asyncio.timeout(_LONGEST_RUN_S):
                await self._break()
                since = [len(seen.token_ids) for seen in self.seen]
                await self._until(lambda: self._all_well(since))
        except TimeoutError:
            for seen in self.seen:
                seen.failure = seen.failure or "stuck"
        finally:
            for task in reading:
                task.cancel()
            await asyncio.gather(*reading, return_exceptions=True)

    def _all_well(self, since: Sequence[int]) -> bool:
        """Return whether each stream has failed, or is stored and has enough tokens after
        ``since``."""
        return all(
            seen.failure or (seen.is_stored and len(seen.token_ids) >= number + self.plan.tokens)
            for seen, number in zip(self.seen, since, strict=True)
        )

    async def _break(self) -> None:
        await self._until(
            lambda: all(len(seen.token_ids) >= _FIRST_TOKENS or seen.failure for seen in self.seen)
        )
        primary = await self._group.primary()
        began_s = time.monotonic()
        if self.plan.loss is PrimaryLoss.KILLED:
            self._group.kill(primary, _BACK_AFTER_S)
        else:
            self._group.freeze(primary)
        await self._group.replaced(primary)
        self.failover_s = time.monotonic() - began_s
        if self.plan.loss is PrimaryLoss.FROZEN:
            self._group.thaw(primary)
        over_s = began_s + self.failover_s
        await self._until(
            lambda: all(_stored_since(seen, over_s) or seen.failure for seen in self.seen)
        )
        self._supervisor.send("orchestrator-0", signal.SIGKILL)

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            await self._next_chunk()

    async def _next_chunk(self) -> None:
        self._changed.clear()
        await self._changed.wait()


def _stored_since(seen: RequestSeen, since_s: float) -> bool:
    return seen.is_stored and seen.chunks[-1][0] > since_s


async def _start_verifier(supervisor: Supervisor) -> None:
    models = WaitingModels(target_ms=_TARGET_MS, drafter_ms=0.0, acceptance=0.0, seed=_SEED)
    await supervisor.start(service_spec("verifier", "verifier", tuple(models.verifier())))


async def _start_orchestrators(supervisor: Supervisor, redis_url: str) -> list[str]:
    flags = ("--verifiers", supervisor.addresses["verifier"])
    specs: list[ProcessSpec] = [
        service_spec(
            "orchestrator", f"orchestrator-{number}", flags, environment={"REDIS_URL": redis_url}
        )
        for number in range(2)
    ]
    return await supervisor.start(*specs)


async def _lost(store: StoredSessions, seen: RequestSeen, target: SimulatedTarget) -> str:
    """Return what the store lacks of what the reader was told is stored, or what of it is wrong;
    empty if nothing is."""
    reason = ""
    for _ in range(_STORE_TRIES):
        try:
            kept = await store.generated(seen.session_id, len(seen.prompt))
        except Unreadable as error:
            reason = str(error)
            await asyncio.sleep(_STORE_PAUSE_S)
            continue
        if kept is None:
            return f"session {seen.session_id} is not in the store"
        if len(kept) < seen.num_stored:
            return (
                f"session {seen.session_id} has {len(kept)} tokens in the store, "
                f"{seen.num_stored} were reported as stored"
            )
        is_right = kept == right_answer(target, seen.prompt, len(kept))
        return "" if is_right else f"session {seen.session_id} has wrong tokens in the store"
    return f"session {seen.session_id} cannot be read from the store: {reason}"


def _outcome(run: _Run, right: Sequence[Sequence[int]], lost: Sequence[str]) -> FailoverOutcome:
    lagged = [seen.not_stored_s for seen in run.seen if seen.not_stored_s]
    return FailoverOutcome(
        loss=run.plan.loss,
        streams=len(run.seen),
        tokens=sum(len(seen.token_ids) for seen in run.seen),
        wrong=sum(
            tuple(seen.token_ids) != said for seen, said in zip(run.seen, right, strict=True)
        ),
        failed=sorted(seen.failure for seen in run.seen if seen.failure),
        kept=len(run.seen) - len(lost),
        lost=lost,
        resumed=sum(not run.resumed.isdisjoint(seen.had_ids) for seen in run.seen),
        failover_s=round(run.failover_s, 3),
        not_stored=len(lagged),
        not_stored_s=Spread.of(lagged),
        longest_pause_s=Spread.of([seen.longest_pause_s for seen in run.seen]),
    )
