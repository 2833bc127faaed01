"""The traces of real answers, from a mesh that keeps them all, called by several clients."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans

from specmesh.bench.traces.core_use import CoreMeter, CoreUse
from specmesh.cli.local.mesh import LocalMesh, MeshOptions
from specmesh.cli.local.traces import Keep, TraceKeeping
from specmesh.client import AsyncClient, Overloaded, SpecmeshError
from specmesh.tools.kit.experiment import GREEDY, Prompt
from specmesh.traces.store.query import Query
from specmesh.traces.store.reader import StoreReader

_NUM_WARM_UP_TOKENS = 16
_RETRY_S = 1.0
"""Time after which an answer that was refused is asked for again, if the mesh doesn't say."""
_MOST_REFUSALS = 100
"""Refusals of an answer after which a mesh is taken to have no room at all."""


@dataclass(frozen=True, slots=True)
class TracedLoad:
    """The load: an answer by each of ``strategies`` for each prompt, ``concurrency`` at a time."""

    prompts: Sequence[Prompt]
    strategies: Sequence[str]
    num_tokens: int
    concurrency: int
    temperature: float = GREEDY


@dataclass(frozen=True, slots=True)
class TracedAnswers:
    """The result of a load."""

    traces: Sequence[Sequence[ResourceSpans]]
    """Traces of all answers, warm-up excluded, in the order of their start."""
    orchestrator: CoreUse | None
    """Use of cores while the answers were made."""


async def traced_answers(
    options: MeshOptions, load: TracedLoad, directory: Path, report: Callable[[str], None]
) -> TracedAnswers:
    """Start a mesh and request all answers. Raises StartError, SpecmeshError."""
    store = directory / "traces.sqlite"
    options = replace(options, traces=TraceKeeping(Keep.ALL, store))
    async with LocalMesh(options, directory, report) as mesh, AsyncClient(mesh.address) as client:
        for strategy in load.strategies:  # The mesh learns latencies and opens connections.
            await _ask(client, load.prompts[0], strategy, load, _NUM_WARM_UP_TOKENS)
        meter = CoreMeter(mesh.pids["orchestrator"])
        sessions = await ask_for_all(client, load)
        use = meter.use()
    return TracedAnswers(list(_stored(store, sessions)), use)  # Complete once the mesh is down.


async def ask_for_all(client: AsyncClient, load: TracedLoad) -> set[str]:
    """Read all answers, and return their sessions. Raises SpecmeshError."""
    sessions = set()
    asked = iter([(prompt, each) for prompt in load.prompts for each in load.strategies])

    async def ask_on() -> None:
        for prompt, strategy in asked:
            sessions.add(await _ask(client, prompt, strategy, load, load.num_tokens))

    try:
        async with asyncio.TaskGroup() as users:
            for _ in range(load.concurrency):
                users.create_task(ask_on())
    except* SpecmeshError as errors:
        raise errors.exceptions[0] from None
    return sessions


async def _ask(
    client: AsyncClient, prompt: Prompt, strategy: str, load: TracedLoad, num_tokens: int
) -> str:
    """Read a whole answer, and return its session. More may be asked for at a time than the mesh
    lets in: one that is refused comes again when it is told to.

    Raises SpecmeshError, Overloaded after ``_MOST_REFUSALS``."""
    num_refused = 0
    while True:
        try:
            result = await client.generate(
                prompt,
                strategy=strategy,
                temperature=load.temperature,
                seed=0,
                max_tokens=num_tokens,
                ignore_end_of_text=True,
            )
        except Overloaded as error:
            num_refused += 1
            if num_refused > _MOST_REFUSALS:
                raise
            await asyncio.sleep(error.retry_after_s or _RETRY_S)
        else:
            return result.session_id


def _stored(store: Path, sessions: set[str]) -> Iterator[list[ResourceSpans]]:
    with StoreReader(store) as reader:
        for summary in reversed(reader.select(Query(limit=1_000_000))):
            if not sessions.isdisjoint(summary.sessions):
                yield list(reader.spans(summary.trace_id).resource_spans)
