"""Whatever is sent within the limits, others notice nothing of it: streams go on, and the memory
that it took is free again.

Requests are sent one after the other, then forty at a time, while a stream runs: here 1,200, and
10,000 by ``make bad-bodies``, which takes 15 s and more where the processors are busy.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable

import psutil
import pytest
from tests.client.conftest import FakeOrchestrator, started, whole_answer
from tests.e2e.processes import Process, launch
from tests.gateway.wire import request

from specmesh.serving.allocator import PERIOD_SECONDS
from specmesh.v1 import events_pb2
from specmesh.v1 import generation_pb2 as pb

NUM_REQUESTS = int(os.environ.get("BAD_BODIES", "1200"))
NUM_ALONE = NUM_REQUESTS // 8
NUM_WARM_UP = 400
"""By then the heap has the holes that it will have: 10,000 leave no more."""
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


async def attack(url: str, first: int, last: int, num_at_once: int) -> dict[str, int]:
    """Send requests from a process of its own; how many had which status."""
    command = ("-m", "tests.gateway.bad_bodies", url, str(first), str(last), str(num_at_once))
    attacker = await asyncio.create_subprocess_exec(
        sys.executable, *command, stdout=asyncio.subprocess.PIPE
    )
    try:
        output, _ = await attacker.communicate()
    except BaseException:
        attacker.kill()
        raise
    assert attacker.returncode == 0
    return json.loads(output)


async def settled(read: Callable[[], int], enough: int) -> int:
    """What ``read`` says once that is ``enough``, or a gateway has given memory back twice."""
    for _ in range(24):
        if read() < enough:
            break
        await asyncio.sleep(PERIOD_SECONDS / 10)
    return read()


@pytest.fixture
async def gateway(serve):
    """The process of a gateway."""
    orchestrator = await serve(Streaming())
    command = ("-m", "tests.gateway.watched_gateway", "--orchestrators", orchestrator.address)
    process = Process("gateway", launch([sys.executable, *command], {**os.environ}))
    yield process
    process.kill()


async def test_no_body_pauses_a_stream_or_keeps_memory(gateway):
    url = await asyncio.to_thread(lambda: gateway.address)
    memory = psutil.Process(gateway.pid).memory_info
    stream = Stream()
    reading = asyncio.create_task(stream.read(url))
    try:
        # What is imported, or kept, on first use is no growth.
        await attack(url, NUM_REQUESTS, NUM_REQUESTS + NUM_WARM_UP, 40)
        before = memory().rss
        alone = await attack(url, 0, NUM_ALONE, 1)
        crowd = await attack(url, NUM_ALONE, NUM_REQUESTS, 40)
        after = await settled(lambda: memory().rss, before + MAX_GROWTH_BYTES)
        growth = after - before
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
