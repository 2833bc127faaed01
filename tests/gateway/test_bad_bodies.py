"""Whatever is sent within the limits, others notice nothing of it: streams go on, and the memory
that it took is free again.

Requests are sent one after the other, then forty at a time, while a stream runs: here 1,000, and
10,000 by ``make bad-bodies``, which takes 15 s and more where the processors are busy.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import psutil
import pytest
from tests.client.conftest import FakeOrchestrator, started, whole_answer
from tests.e2e.processes import Process, launch
from tests.gateway.watched_gateway import GIVES_BACK_S
from tests.gateway.wire import request

from specmesh.v1 import events_pb2
from specmesh.v1 import generation_pb2 as pb

NUM_REQUESTS = int(os.environ.get("BAD_BODIES", "1000"))
NUM_ALONE = NUM_REQUESTS // 8
NUM_WARM_UP = 80
"""Requests after which everything is imported and has run once."""
MAX_LOOP_PAUSE_S = 0.2
"""A stream that may not pause for 250 ms has several turns of the event loop between two tokens, of
which one may be as long as this."""
MAX_GROWTH_BYTES = 20 * 2**20
PERIOD_S = 0.01
WATCHED = "watched"


class Streaming(FakeOrchestrator):
    """Answers one prompt with a token every PERIOD_S, without end."""

    async def Generate(self, request, context):  # noqa: N802
        events = whole_answer(context) if request.text != WATCHED else self._tokens()
        async for event in events:
            yield pb.GenerateResponse(event=event)

    async def _tokens(self):
        yield started()
        number = 0
        while True:
            chunk = events_pb2.GenerationChunk(first_index=number, token_ids=[1], text=f"{number} ")
            yield events_pb2.GenerationEvent(chunk=chunk)
            number += 1
            await asyncio.sleep(PERIOD_S)


class Stream:
    """That stream, as it is read."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.longest_wait_s = 0.0
        """By the clock: a busy machine has its part in it."""

    async def read(self, url: str) -> None:
        """Read until cancelled, or until it ends."""
        host, _, port = url.partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(
            request(json.dumps({"model": "toy", "prompt": WATCHED, "stream": True}).encode())
        )
        try:
            last_s = time.monotonic()
            async for line in reader:
                if line.startswith(b"data: {"):
                    text = json.loads(line.removeprefix(b"data: "))["choices"][0]["text"]
                    self.tokens.append(int(text))
                    self.longest_wait_s = max(self.longest_wait_s, time.monotonic() - last_s)
                    last_s = time.monotonic()
        finally:
            writer.close()


Attack = Callable[[int, int, int], Awaitable[dict[str, int]]]


@asynccontextmanager
async def attacker(url: str) -> AsyncIterator[Attack]:
    """Run a process that sends the requests of a range of numbers, some at a time."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.gateway.bad_bodies", url),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    to_it, from_it = process.stdin, process.stdout
    assert to_it is not None
    assert from_it is not None

    async def attack(first: int, last: int, num_at_once: int) -> dict[str, int]:
        to_it.write(f"{first} {last} {num_at_once}\n".encode())
        return json.loads(await from_it.readline())

    try:
        yield attack
    finally:
        process.kill()
        await process.wait()


async def settled(read: Callable[[], int]) -> int:
    """Return the least that ``read`` says while the gateway gives memory back twice."""
    least = read()
    for _ in range(24):
        await asyncio.sleep(GIVES_BACK_S / 10)
        least = min(least, read())
    return least


@pytest.fixture
async def gateway(serve):
    """The process of a gateway."""
    orchestrator = await serve(Streaming())
    options = ("--orchestrators", orchestrator.address, "--port", "0")
    command = [sys.executable, "-m", "tests.gateway.watched_gateway", *options]
    process = Process("gateway", launch(command, {**os.environ}))
    yield process
    process.kill()


async def test_no_body_pauses_a_stream_or_keeps_memory(gateway):
    url = await asyncio.to_thread(lambda: gateway.address)
    process = psutil.Process(gateway.pid)
    stream = Stream()
    reading = asyncio.create_task(stream.read(url))
    try:
        async with attacker(url) as attack:
            await attack(NUM_REQUESTS, NUM_REQUESTS + NUM_WARM_UP, 40)
            before = await settled(lambda: process.memory_info().rss)
            alone = await attack(0, NUM_ALONE, 1)
            crowd = await attack(NUM_ALONE, NUM_REQUESTS, 40)
            growth = await settled(lambda: process.memory_info().rss) - before
        assert not reading.done()
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
    gateway.send(signal.SIGTERM)
    pauses = await asyncio.to_thread(gateway.wait_event, "pauses")
    sys.stdout.write(
        f"alone {alone}\nforty at a time {crowd}\n"
        f"longest pauses of the loop {pauses['longest']} s, "
        f"wait for a token {stream.longest_wait_s:.3f} s, {growth / 2**20:.1f} MiB more\n"
    )
    assert pauses["longest"][-1] < MAX_LOOP_PAUSE_S
    assert growth < MAX_GROWTH_BYTES
    assert stream.tokens == list(range(len(stream.tokens)))
    assert len(stream.tokens) > 50
    assert sum(alone.values()) + sum(crowd.values()) == NUM_REQUESTS
    assert alone.keys() | crowd.keys() <= {"200", "400", "413", "415", "429", "431"}
    assert min(alone["200"], alone["400"]) > NUM_ALONE / 20
