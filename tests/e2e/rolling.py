"""What a cluster does in a rolling update: replace processes one by one, and route by readiness."""

from __future__ import annotations

import asyncio
import itertools
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.e2e.processes import Process, Processes

from specmesh.serving.rpc.health import READINESS

PATIENCE_S = 30.0


@dataclass(slots=True)
class Replica:
    """A role at an address, whichever process has it."""

    processes: Processes
    role: str
    flags: tuple[str, ...]
    port: str
    process: Process | None = None

    @property
    def address(self) -> str:
        """Where it is called."""
        return f"127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Return once it serves."""
        flags = ("--port", self.port, "--probe-address", "0", *self.flags)
        self.process = self.processes.service(self.role, *flags)
        await asyncio.to_thread(self.process.wait_event, "serving", PATIENCE_S)

    async def restart(self) -> None:
        """Ask the process to end, and have another in its place."""
        await self.end()
        await self.start()

    async def end(self) -> None:
        """Ask the process to end; it must do so without a failure."""
        assert self.process is not None
        self.process.send(signal.SIGTERM)
        assert await asyncio.to_thread(self.process.wait_exit) == 0


async def watch_readiness(process: Process) -> AsyncIterator[bool]:
    """Whether a process is ready, as its probe port tells, until that is gone."""
    address = (await asyncio.to_thread(process.wait_event, "probes"))["address"]
    async with grpc.aio.insecure_channel(address) as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch(
            health_pb2.HealthCheckRequest(service=READINESS)
        )
        with suppress(grpc.aio.AioRpcError):
            async for answer in watch:
                yield answer.status == answer.SERVING
    yield False


class Balancer:
    """Gives each TCP connection to the next of those that are ready, as a Service does."""

    def __init__(self) -> None:
        self.url = ""
        self._ready: dict[str, asyncio.Event] = {}
        self._turns = itertools.count()
        self._watches: set[asyncio.Task[None]] = set()
        self._relays: set[asyncio.Task[None]] = set()

    async def add(self, replica: Replica) -> None:
        """Return once ``replica`` gets connections."""
        ready = asyncio.Event()
        watch = asyncio.create_task(self._follow(replica, ready))
        self._watches.add(watch)
        watch.add_done_callback(self._watches.discard)
        async with asyncio.timeout(PATIENCE_S):
            await ready.wait()

    async def _follow(self, replica: Replica, ready: asyncio.Event) -> None:
        assert replica.process is not None
        async for is_ready in watch_readiness(replica.process):
            if is_ready:
                self._ready[replica.address] = ready
                ready.set()
            else:
                self._ready.pop(replica.address, None)

    async def relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection to its end."""
        relay = asyncio.current_task()
        assert relay is not None
        self._relays.add(relay)
        relay.add_done_callback(self._relays.discard)
        addresses = list(self._ready)
        address = addresses[next(self._turns) % len(addresses)]
        behind = await asyncio.open_connection(*address.split(":"))
        await asyncio.gather(_carry(reader, behind[1]), _carry(behind[0], writer))

    async def close(self) -> None:
        """Follow and carry no more."""
        tasks = self._watches | self._relays
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        with suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
    finally:
        writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


@asynccontextmanager
async def balancing() -> AsyncIterator[Balancer]:
    """A balancer that listens."""
    balancer = Balancer()
    server = await asyncio.start_server(balancer.relay, "127.0.0.1", 0)
    balancer.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield balancer
    finally:
        server.close()
        await balancer.close()
