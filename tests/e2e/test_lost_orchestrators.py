"""Orchestrators lost over and over in the middle of answers: both SDKs say what they would have.

They ask who calls, and it is always the same identity, whose own the sessions are.
"""

import asyncio
import hashlib
import json
import random

import pytest
from tests.e2e.answers import said
from tests.ports import free_port

from specmesh.bench.chaos.proxy import Link, Weather
from specmesh.client import AsyncClient, Client, Timeouts

NUM_KILLS = 50
NUM_DROPS = 20
ANSWER = {"max_tokens": 40, "ignore_end_of_text": True, "strategy": "speculative", "lookahead": 3}
SAMPLINGS = ({"temperature": 0.0}, {"temperature": 0.8, "seed": 7})
PROMPTS = tuple(range(1, 9)), tuple(range(20, 50))
TOKEN = "a long and random token"
PATIENT = {"timeouts": Timeouts(generate_s=30), "token": TOKEN}
EVENT_S = 30


class Orchestrators:
    """Two, over simulated models and a Redis, that come back at the same address when killed."""

    def __init__(self, processes, folder):
        tokens = folder / "tokens.json"
        known = {"name": "alice", "sha256": hashlib.sha256(TOKEN.encode()).hexdigest()}
        tokens.write_text(json.dumps([known]))
        _, redis_url = processes.redis()
        simulated = ("--backend", "simulated", "--simulated-seed", "5")
        verifiers = [
            processes.service("verifier", *simulated, "--simulated-each-ms", "6") for _ in range(2)
        ]
        drafter = processes.service("drafter", *simulated, "--simulated-each-ms", "1")
        self._processes = processes
        self._flags = (
            *("--verifiers", ",".join(each.address for each in verifiers)),
            *("--drafters", drafter.address, "--redis-url", redis_url),
            *("--tokens", str(tokens)),
        )
        addresses = [f"127.0.0.1:{port}" for port in (free_port(), free_port())]
        self._running = {address: self._start(address) for address in addresses}
        self.addresses = addresses

    def _start(self, address):
        port = address.rpartition(":")[2]
        return self._processes.service("orchestrator", *self._flags, "--port", port)

    async def up(self, address):
        """Wait until the orchestrator at ``address`` serves."""
        patient = Timeouts(call_s=EVENT_S)
        async with AsyncClient(address, max_retries=100, timeouts=patient, token=TOKEN) as own:
            await own.list_models()

    def kill(self, address):
        """Kill the orchestrator at ``address``, and have another one start there."""
        self._running[address].kill()
        self._running[address] = self._start(address)


@pytest.fixture
def orchestrators(processes, tmp_path):
    return Orchestrators(processes, tmp_path)


async def undisturbed(addresses):
    """What each prompt gets with each sampling."""
    async with AsyncClient(*addresses, max_retries=100, **PATIENT) as client:
        truth = {
            asked: said(await client.generate(PROMPTS[asked[0]], **ANSWER, **SAMPLINGS[asked[1]]))
            for asked in ((prompt, sampling) for prompt in (0, 1) for sampling in (0, 1))
        }
    assert len(set(truth.values())) > 1
    assert {len(tokens) for tokens, _ in truth.values()} == {ANSWER["max_tokens"]}
    return truth


async def read_async(client, asked, at_token, disturb):
    stream = client.generate(PROMPTS[asked[0]], **ANSWER, **SAMPLINGS[asked[1]])
    async for _ in stream:
        if len(stream.token_ids) >= at_token:
            disturb()
    return stream.result


def read_sync(client, asked, at_token, disturb):
    stream = client.generate(PROMPTS[asked[0]], **ANSWER, **SAMPLINGS[asked[1]])
    for _ in stream:
        if len(stream.token_ids) >= at_token:
            disturb()
    return stream.result


def once(function):
    """``function``, which only the first call calls."""
    left = [function]
    return lambda: left.pop()() if left else None


async def test_killed_fifty_times_at_a_random_token_the_text_is_the_same(orchestrators):
    truth = await undisturbed(orchestrators.addresses)
    rng = random.Random(16)
    num_resumes = {"async": 0, "sync": 0}
    for number in range(NUM_KILLS):
        victim, heir = orchestrators.addresses[:: 1 if number % 2 else -1]
        await orchestrators.up(victim)
        asked = rng.choice(sorted(truth))
        at_token = rng.randrange(1, ANSWER["max_tokens"] - 5)
        kill = once(lambda victim=victim: orchestrators.kill(victim))
        async with AsyncClient(victim, heir, **PATIENT) as one:
            with Client(victim, heir, **PATIENT) as other:
                results = await asyncio.gather(
                    read_async(one, asked, at_token, kill),
                    asyncio.to_thread(read_sync, other, asked, at_token, kill),
                )
        for sdk, result in zip(num_resumes, results, strict=True):
            assert said(result) == truth[asked], (number, sdk, at_token)
            num_resumes[sdk] += result.num_resumes
    assert all(resumes >= NUM_KILLS * 0.8 for resumes in num_resumes.values()), num_resumes


async def test_with_packets_dropped_twenty_times_the_text_is_the_same(orchestrators):
    """Nothing passes any more, in either direction, and no connection ends."""
    truth = await undisturbed(orchestrators.addresses)
    rng = random.Random(16)

    async def answer(number):
        first, heir = orchestrators.addresses
        host, port = first.split(":")
        link = Link(lambda: asyncio.open_connection(host, int(port)))
        targets = (await link.open(), heir)
        asked = rng.choice(sorted(truth))
        at_token = rng.randrange(1, ANSWER["max_tokens"] - 5)
        loop = asyncio.get_running_loop()
        nothing_passes = Weather(requests_pass=False, replies_pass=False)
        drop = once(lambda: loop.call_soon_threadsafe(link.set, nothing_passes))
        if number % 2:
            async with AsyncClient(*targets, **PATIENT) as client:
                result = await read_async(client, asked, at_token, drop)
        else:
            with Client(*targets, **PATIENT) as client:
                result = await asyncio.to_thread(read_sync, client, asked, at_token, drop)
        await link.close()
        assert said(result) == truth[asked], (number, at_token)
        return result.num_resumes

    resumes = await asyncio.gather(*map(answer, range(NUM_DROPS)))
    assert sum(map(bool, resumes)) >= NUM_DROPS * 0.8, resumes
