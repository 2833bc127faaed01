"""The bytes of all requests have a bound."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack

from tests.client.conftest import whole_answer
from tests.gateway.conftest import never_ends
from tests.gateway.wire import SOON, answer, connected, request, sent

ASKED = {"model": "toy", "prompt": "hello"}


async def test_bytes_of_bodies_in_flight_have_a_bound(open_gateway, orchestrator):
    orchestrator.generate_scripts = [never_ends, never_ends, whole_answer]
    gateway = await open_gateway(
        orchestrator.address, max_request_bytes=10_000, max_held_bytes=25_000, drain_seconds=0
    )
    body = json.dumps({**ASKED, "prompt": "x" * 9_900, "stream": True}).encode()
    async with AsyncExitStack() as stack:
        for _ in range(2):
            reader, writer = await stack.enter_async_context(connected(gateway))
            writer.write(request(body))
            await asyncio.wait_for(reader.readuntil(b"data: "), SOON)
        refused = await sent(gateway, request(body))
        assert (refused.status, refused.code) == (429, "overloaded")
        assert b"x-should-retry: true" in refused.head
        assert (await sent(gateway, request(b"{}"))).status == 400  # small ones have room
    async with asyncio.timeout(SOON):
        while (await sent(gateway, request(body))).status != 200:
            pass


async def test_a_part_of_a_body_counts_as_soon_as_it_is_there(open_gateway, orchestrator):
    gateway = await open_gateway(
        orchestrator.address, max_request_bytes=10_000, max_held_bytes=15_000, drain_seconds=0
    )
    half = request(b"", b"content-length: 9900", length=False) + b" " * 8_000
    async with connected(gateway) as (_, waits), connected(gateway) as (reader, writer):
        waits.write(half)
        await asyncio.sleep(0.1)
        writer.write(half)
        assert (await answer(reader)).code == "overloaded"


async def test_a_prompt_counts_once_for_each_choice(open_gateway, orchestrator):
    gateway = await open_gateway(
        orchestrator.address, max_request_bytes=10_000, max_held_bytes=25_000, drain_seconds=0
    )
    asked = {**ASKED, "prompt": "x" * 9_000, "n": 4}
    response = await gateway.post("/v1/completions", asked)
    assert (response.status_code, response.json()["error"]["code"]) == (413, "body_too_large")
    assert orchestrator.requests == []


async def test_what_prompts_share_counts_once_for_each_prompt(open_gateway, orchestrator):
    gateway = await open_gateway(
        orchestrator.address, max_request_bytes=10_000, max_held_bytes=45_000, drain_seconds=0
    )
    asked = {**ASKED, "prompt": ["a"] * 4}
    shared = {"stop": ["x" * 250] * 16, "guided_regex": "x" * 5_000}
    response = await gateway.post("/v1/completions", {**asked, **shared, "n": 2})
    assert (response.status_code, response.json()["error"]["code"]) == (413, "body_too_large")
    assert orchestrator.requests == []
    orchestrator.generate_scripts = [whole_answer] * 8
    asked["prompt"] = ["x" * 2_000] * 4  # as many bytes, of which each call has a quarter
    response = await gateway.post("/v1/completions", {**asked, "n": 2})
    assert response.status_code == 200


async def test_a_list_of_token_ids_counts_as_a_prompt(open_gateway, orchestrator):
    orchestrator.generate_scripts = [whole_answer] * 16
    gateway = await open_gateway(
        orchestrator.address, max_request_bytes=10_000, max_held_bytes=20_000, drain_seconds=0
    )
    asked = {**ASKED, "prompt": [list(range(100))] * 16}
    assert (await gateway.post("/v1/completions", asked)).status_code == 200
