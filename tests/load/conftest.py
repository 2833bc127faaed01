"""What the tests of load share: a transport without a server, and runs of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from specmesh.load.generators.fleet import Busy, FleetSeen
from specmesh.load.generators.generator import Chunks, Generator, WorkloadPart, monotonic_since
from specmesh.load.transports.observation import Observation, RequestOutcome
from specmesh.load.transports.transport import Heard, LoadRequest, Told
from specmesh.load.workload.arrivals import ReplayedArrivals
from specmesh.load.workload.conversations import Synthetic
from specmesh.load.workload.lengths import ConstantLength
from specmesh.load.workload.plan import RunLength, Workload
from specmesh.load.workload.variations import Variation

Answer = Callable[[LoadRequest, Heard], Awaitable[Told | None]]


async def says_two_words(call: LoadRequest, heard: Heard) -> Told | None:
    """An answer of two tokens, at once."""
    for word in ("one ", "two "):
        if not heard(1, word):
            return None
    return Told(num_prompt_tokens=3, num_output_tokens=2)


@dataclass(slots=True)
class FakeTransport:
    """Answers as a function says; keeps the calls."""

    answer: Answer = says_two_words
    calls: list[LoadRequest] = field(default_factory=list)

    async def ask(self, call: LoadRequest, heard: Heard) -> Told | None:
        self.calls.append(call)
        return await self.answer(call, heard)


def workload(**changed: Any) -> Workload:
    """Three requests at once, unless ``changed``."""
    given: dict[str, Any] = {
        "arrivals": ReplayedArrivals((0.0, 0.0, 0.0)),
        "conversations": Synthetic(prompt_tokens=ConstantLength(4)),
        "extent": RunLength(),
        "variations": (Variation(),),
        "output_tokens": ConstantLength(8),
    }
    return Workload(**{**given, **changed})


async def generated(load: Workload, transport: FakeTransport) -> list[Observation]:
    """What one generator saw of a load, in the order in which requests were due."""
    seen: list[Observation] = []
    await _run(load, transport, seen)
    return sorted(seen, key=lambda each: (each.due_s, each.conversation, each.turn))


async def chunks_of(load: Workload, transport: FakeTransport) -> Chunks:
    """What the chunks of its answers were like."""
    return await _run(load, transport, [])


async def _run(load: Workload, transport: FakeTransport, seen: list[Observation]) -> Chunks:
    now = monotonic_since(time.monotonic())
    generator = Generator(load, WorkloadPart(0, 1, False), transport, seen.append, now)
    async with asyncio.timeout(20):
        await generator.run()
    return generator.chunks


def observed(due_s: float, *, ttft_s: float = 0.1, e2e_s: float = 0.5, **given: Any) -> Observation:
    """An answer of five tokens."""
    fields: dict[str, Any] = {
        "conversation": 0,
        "turn": 0,
        "variation": 0,
        "sent_s": due_s,
        "first_s": due_s + ttft_s,
        "ended_s": due_s + e2e_s,
        "outcome": RequestOutcome.ANSWERED,
        "num_prompt_tokens": 10,
        "num_output_tokens": 5,
    }
    return Observation(due_s=due_s, **{**fields, **given})


def seen(observations: Iterable[Observation], busy: Iterable[Busy] = ()) -> FleetSeen:
    """As a fleet of one would have it."""
    ordered = sorted(observations, key=lambda each: each.due_s)
    return FleetSeen(ordered, Chunks(), [list(busy)], 0.0, False)
