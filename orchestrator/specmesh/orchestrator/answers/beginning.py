"""From a call to its answer: what has to be waited for before the first event, and how a client
that knows of heartbeats is kept waiting."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing
from typing import NamedTuple

from specmesh.orchestrator.admission.entrance import Slot
from specmesh.orchestrator.answers import events
from specmesh.orchestrator.answers.answer import HEARTBEAT_S, Answer
from specmesh.orchestrator.replicas.calls.mesh_calls import ReplicaPools
from specmesh.v1.events_pb2 import GenerationEvent


class Begun(NamedTuple):
    """An answer that was admitted."""

    answer: Answer
    slot: Slot


Begin = Callable[[AsyncExitStack], Awaitable[Begun]]
"""Checks a request, waits for its turn and makes its answer, which holds what is on the stack."""


async def events_of(
    begin: Begin, mesh: ReplicaPools, *, is_waited_for: bool
) -> AsyncGenerator[GenerationEvent, None]:
    """The events of the answer that ``begin`` makes; closing the generator ends all of it.

    ``is_waited_for`` says that the client has been told of heartbeats, by the stream that it
    carries on. It would take their absence for the end of this one, and queue anew elsewhere; so
    they come before the first event, too.
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
        async with aclosing(answer.events(mesh, slot.leave)) as told:
            async for event in told:
                yield event


async def _begun(begin: Begin, stack: AsyncExitStack, mesh: ReplicaPools | None) -> Begun:
    """With a mesh the answer is a new one: what nobody can work on does not begin."""
    begun = await begin(stack)
    if mesh is not None:
        await begun.answer.require_replica(mesh)
    return begun
