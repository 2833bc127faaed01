"""The floor: what a process pays for messages that it only passes on."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import grpc

from specmesh.bench.capacity.load import StreamLoad
from specmesh.bench.capacity.placement import CorePlan
from specmesh.bench.capacity.relay import ANSWER, LENGTH_BYTES, SERVICE
from specmesh.cli.local.logs import serving_address
from specmesh.cli.local.process import ProcessSpec
from specmesh.cli.local.supervisor import Supervisor
from specmesh.serving.process.server_loop import run
from specmesh.tools.kit.processor_time import processor_s

MESSAGES_PER_STEP: Final = 3
"""A message to the server behind the relay, one from it, and one to the client."""


@dataclass(frozen=True, slots=True)
class Floor:
    """A running relay."""

    address: str
    pid: int

    async def us_per_message(self, generators: Executor, load: StreamLoad) -> float:
        """Return the relay's processor time in µs for each message that it sends or reads, if as
        many streams as in ``load`` ask for as many answers, with a step for each token.

        One of ``generators`` reads them all. Raises ProcessLookupError if the relay has died.
        """
        loop = asyncio.get_running_loop()
        used_s = processor_s(self.pid)
        await loop.run_in_executor(generators, read_steps, self.address, load)
        used_s = processor_s(self.pid) - used_s
        return used_s * 1e6 / (load.num_tokens * MESSAGES_PER_STEP)


@asynccontextmanager
async def relaying(cores: CorePlan, processes: Supervisor) -> AsyncIterator[Floor]:
    """Run a relay on the core of the role that has one for itself, and the server behind it. Raises
    StartError."""
    try:
        (server,) = await processes.start(_spec("server", cores.rest))
        (relay,) = await processes.start(_spec("relay", cores.alone, server))
        yield Floor(relay, processes.pids["relay"])
    finally:
        await processes.stop()


def _spec(name: str, cores: frozenset[int], *arguments: str) -> ProcessSpec:
    command = (sys.executable, "-P", "-m", "specmesh.bench.capacity.relay", *arguments)
    return ProcessSpec(name, command, serving_address, cores=cores)


def read_steps(address: str, load: StreamLoad) -> None:
    """Read the steps of all streams, in this process. Raises AioRpcError."""
    run(_read(address, load))


async def _read(address: str, load: StreamLoad) -> None:
    asked = load.tokens.to_bytes(LENGTH_BYTES)
    async with grpc.aio.insecure_channel(address) as channel:
        ask: grpc.aio.UnaryStreamMultiCallable[bytes, bytes]
        ask = channel.unary_stream(f"/{SERVICE}/{ANSWER}")

        async def read() -> None:
            for _ in range(load.answers):
                async for _ in ask(asked):
                    pass

        await asyncio.gather(*(read() for _ in range(load.streams)))
