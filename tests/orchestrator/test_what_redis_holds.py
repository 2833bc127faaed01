"""The table in docs/sessions.md, counted."""

from __future__ import annotations

import asyncio

from redis.asyncio import Redis
from tests.orchestrator.answers import collect, request
from tests.orchestrator.peers import Verifier
from tests.serving.acl import as_documented

from specmesh.orchestrator.replicas.prefixes.holders import PrefixHolders
from specmesh.orchestrator.replicas.prefixes.shared_holders import SharedHolders
from specmesh.serving.store.prefix_directory import LEASE_SECONDS, PrefixDirectory

NUM_ANSWERS = 300
NUM_AT_ONCE = 50
BYTES_A_SESSION = 1500
"""Redis's own overhead of two keys and their expiry included."""


async def test_hundreds_of_answers_leave_two_small_keys_each_that_expire(
    connect, serve, store_on, start_redis
):
    redis = start_redis()
    stub = await serve(await connect([Verifier()]), store_on(redis.url, timeout_s=10))
    asked = request(stopping={"max_tokens": 3}, speculation={"strategy": "autoregressive"})

    async def answer(number: int) -> bool:
        call = stub.Generate(asked)
        if number % 2:
            await collect(call)
        else:
            await collect(call, num_chunks=1)
            call.cancel()
        return bool(number % 2)

    async with Redis.from_url(redis.url) as client:
        await collect(stub.Generate(asked))  # connections, scripts
        before = (await client.info("memory"))["used_memory"]
        for first in range(0, NUM_ANSWERS, NUM_AT_ONCE):
            await asyncio.gather(*map(answer, range(first, first + NUM_AT_ONCE)))
        keys = await client.keys("*")
        assert len(keys) == 2 * (NUM_ANSWERS + 1)
        assert {key.rpartition(b":")[2] for key in keys} == {b"session", b"tokens"}
        used = (await client.info("memory"))["used_memory"] - before
        assert used / NUM_ANSWERS < BYTES_A_SESSION
        async with client.pipeline(transaction=False) as pipeline:
            for key in keys:
                pipeline.ttl(key)
            lives = await pipeline.execute()
    assert all(0 < life <= 600 for life in lives)
    num_finished = sum(life <= 60 for life in lives)
    assert num_finished >= 2 * (NUM_ANSWERS // 2)


NUM_PROMPTS = 50
PROMPT_TOKENS = 400
BYTES_A_BEGINNING = 300
"""As Redis counts it, with one replica that holds it."""


async def test_each_prompt_leaves_a_small_key_for_each_beginning_that_is_noted(
    connect, serve, start_redis
):
    redis = start_redis()
    shared = SharedHolders(PrefixDirectory.from_url(as_documented(redis.url), timeout_s=10))
    stub = await serve(await connect([Verifier()], holders=PrefixHolders(shared=shared)))
    asked = {"stopping": {"max_tokens": 2}, "speculation": {"strategy": "autoregressive"}}
    async with Redis.from_url(redis.url) as client:
        for number in range(NUM_PROMPTS):
            ids = [1 + number % 250, 1 + number // 250, *[7] * (PROMPT_TOKENS - 2)]
            await collect(stub.Generate(request(tokens={"ids": ids}, **asked)))
        await shared.aclose()
        keys = await client.keys("*")
        # At 256 tokens, and at the end of prompt and answer, which are in one block.
        assert len(keys) == 2 * NUM_PROMPTS
        assert {key.rpartition(b":")[2] for key in keys} == {b"holders"}
        used = [await client.memory_usage(key) for key in keys]
        assert max(used) < BYTES_A_BEGINNING
        lives = [await client.ttl(key) for key in keys]
    assert all(0 < life <= LEASE_SECONDS for life in lives)
