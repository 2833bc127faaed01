"""The conduct of one run, from the start of the generators to its result."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from specmesh.load.generators.fleet import Fleet, FleetSeen, Listener
from specmesh.load.generators.generator import monotonic_since
from specmesh.load.results.objectives import Objectives
from specmesh.load.results.report import Result
from specmesh.load.runs.measured_time import measured_time
from specmesh.load.runs.servers import ServerWatch
from specmesh.load.runs.summary import summarise
from specmesh.load.transports.transport import RequestFailed, ServerAddress
from specmesh.load.workload.conversations import WORDS, Listed
from specmesh.load.workload.plan import Workload

NO_STRATEGIES = "NO_STRATEGIES"
"""Reason of RequestFailed for a server that does not know specmesh's strategies."""
_SAMPLE = " ".join(WORDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """The settings of a run. ``metrics`` has the addresses of the servers to scrape."""

    workload: Workload
    door: ServerAddress
    processes: int = 1
    objectives: Objectives | None = None
    metrics: Sequence[str] = ()
    num_slowest: int = 0


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """A run that has ended. ``plan`` is the requested one, completed by the name of the model and
    by the measured words per token."""

    plan: RunPlan
    seen: FleetSeen
    result: Result


async def conduct(
    plan: RunPlan,
    listener: Listener = lambda number, progress: None,  # noqa: ARG005
    sending: Callable[[Fleet], None] = lambda fleet: None,  # noqa: ARG005
) -> FinishedRun:
    """Run ``plan``. ``sending`` is called with the fleet once it sends. From then on it can be
    stopped early, with its result.

    Raises RequestFailed if the server can't be reached or does not know strategies of the plan, and
    CannotScrape if an address of ``metrics`` does not answer.
    """
    watch = ServerWatch(plan.metrics)
    await watch.check()
    plan = await _for_server(plan)
    workload = plan.workload
    fleet = Fleet(workload, plan.door, plan.processes, traced=plan.num_slowest > 0)
    watching: list[asyncio.Task[None]] = []

    def started(epoch_s: float) -> None:
        sending(fleet)
        if plan.metrics:
            watching.append(asyncio.create_task(watch.run(monotonic_since(epoch_s))))

    try:
        seen = await fleet.run(started, listener)
    finally:
        for each in watching:
            each.cancel()
            with suppress(asyncio.CancelledError):
                await each
    span = measured_time(workload, seen)
    servers = watch.servers(span.from_s, span.until_s)
    result = summarise(workload, seen, plan.objectives, servers, plan.num_slowest)
    return FinishedRun(plan, seen, result)


async def _for_server(plan: RunPlan) -> RunPlan:
    """Return ``plan`` with the name of the model and the words per token of its tokenizer. Prompts
    from a file need no words per token. Raises RequestFailed."""
    door, workload = plan.door, plan.workload
    strategies = [each.name for each in workload.variations if each.strategy or each.options]
    if strategies or not door.model:
        async with door.open() as transport:
            served = await transport.served()
        if strategies and not served.has_strategies:
            raise RequestFailed(
                NO_STRATEGIES,
                f"{door.description} is not a specmesh server and would ignore the strategy or "
                f"options of: {'; '.join(strategies)}",
            )
        door = door.asking_for(served.model)
    if not isinstance(workload.conversations, Listed):
        async with door.open() as transport:
            num_tokens = await transport.count_tokens(_SAMPLE)
        workload = replace(workload, words_per_token=len(WORDS) / max(1, num_tokens))
    return replace(plan, door=door, workload=workload)
