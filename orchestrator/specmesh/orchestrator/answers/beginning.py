"""The beginning of an answer: everything that must be waited for before the first event, with
heartbeats for clients that expect them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing
from typing import NamedTuple

from specmesh.orchestrator.admission.slot import Slot
from specmesh.orchestrator.answers import events
from specmesh.orchestrator.answers.answer import HEARTBEAT_S, Answer
from specmesh.orchestrator.replicas.replica_pools import ReplicaPools
from specmesh.v1.events_pb2 import GenerationEvent

HEARTBEATS = ("specmesh-heartbeats", "early")
"""The metadata with which a client asks for heartbeats even before the first event."""


class Begun(NamedTuple):
    """An answer that was admitted."""

    answer: Answer
    slot: Slot


Begin = Callable[[AsyncExitStack], Awaitable[Begun]]
"""Checks a request, waits for its admission and makes its answer; the stack holds its resources."""


async def events_of(
    begin: Begin,
    mesh: ReplicaPools,
    *,
    is_new: bool,
    has_heartbeats: bool,
    chunk_interval_s: float,
) -> AsyncGenerator[GenerationEvent, None]:
    """Yield the events of the answer that ``begin`` makes; closing the generator ends all of it.

    An answer that ``is_new`` requires a replica to work on it. ``has_heartbeats`` says that the
    client expects heartbeats even before the first event, because it continues a stream that had
    them, or asked for them: without any, it would take a long wait for a dead stream and retry
    elsewhere. Tokens may wait for others for ``chunk_interval_s`` after a chunk.
    """
    async with AsyncExitStack() as stack:
        beginning = asyncio.ensure_future(_begun(begin, stack, mesh if is_new else None))
        try:
            while not beginning.done():
                await asyncio.wait({beginning}, timeout=HEARTBEAT_S)
                if has_heartbeats and not beginning.done():
                    yield events.heartbeat()
        finally:
            if not beginning.done():
                beginning.cancel()
                await asyncio.gather(beginning, return_exceptions=True)
        try:
            answer, slot = beginning.result()
        finally:
            del beginning  # an error of it refers to this frame, which would form a cycle
        async with aclosing(answer.events(mesh, slot, chunk_interval_s)) as told:
            async for event in told:
                yield event


async def _begun(begin: Begin, stack: AsyncExitStack, mesh: ReplicaPools | None) -> Begun:
    """Begin the answer; with a mesh, the answer is new and requires a replica to work on it."""
    begun = await begin(stack)
    if mesh is not None:
        await begun.answer.require_replica(mesh)
    return begun
