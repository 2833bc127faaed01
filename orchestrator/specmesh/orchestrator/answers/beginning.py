"""The beginning of an answer: everything that must be waited for before the first event, with
heartbeats for clients that expect them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing
from typing import NamedTuple

from specmesh.orchestrator.admission.entrance import Slot
from specmesh.orchestrator.answers import events
from specmesh.orchestrator.answers.answer import HEARTBEAT_S, Answer
from specmesh.orchestrator.replicas.replica_pools import ReplicaPools
from specmesh.v1.events_pb2 import GenerationEvent


class Begun(NamedTuple):
    """An answer that was admitted."""

    answer: Answer
    slot: Slot


Begin = Callable[[AsyncExitStack], Awaitable[Begun]]
"""Checks a request, waits for its admission and makes its answer; the stack holds its resources."""


async def events_of(
    begin: Begin, mesh: ReplicaPools, *, is_waited_for: bool
) -> AsyncGenerator[GenerationEvent, None]:
    """Yield the events of the answer that ``begin`` makes; closing the generator ends all of it.

    ``is_waited_for`` says that the client continues an earlier stream, which told it to expect
    heartbeats. Without any, it would take this stream for dead and retry elsewhere, so heartbeats
    are sent even before the first event.
    """
    async with AsyncExitStack() as stack:
        beginning = asyncio.ensure_future(_begun(begin, stack, None if is_waited_for else mesh))
        try:
            while not beginning.done():
                await asyncio.wait({beginning}, timeout=HEARTBEAT_S)
                if is_waited_for and not beginning.done():
                    yield events.heartbeat()
        finally:
            beginning.cancel()
            await asyncio.gather(beginning, return_exceptions=True)
        answer, slot = beginning.result()
        async with aclosing(answer.events(mesh, slot)) as told:
            async for event in told:
                yield event


async def _begun(begin: Begin, stack: AsyncExitStack, mesh: ReplicaPools | None) -> Begun:
    """Begin the answer; with a mesh, the answer is new and requires a replica to work on it."""
    begun = await begin(stack)
    if mesh is not None:
        await begun.answer.require_replica(mesh)
    return begun
