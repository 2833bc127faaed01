"""The bytes of all requests have a bound."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack

import pytest
from tests.client.conftest import whole_answer
from tests.gateway.conftest import never_ends
from tests.gateway.test_callers import bearer, tokens
from tests.gateway.test_chats import with_logprobs
from tests.gateway.wire import SOON, answer, connected, request, sent

from specmesh.gateway.errors import ApiError
from specmesh.gateway.http.held import Held, HeldBytes
from specmesh.gateway.requests.chats import chat_request
from specmesh.gateway.requests.completions import completion_request
from specmesh.gateway.requests.weight import num_bytes
from specmesh.gateway.responses.answers import LOGPROB_BYTES

__all__ = ["tokens"]

ASKED = {"model": "toy", "prompt": "hello"}
SAID = [{"role": "user", "content": "hello " * 99}]


async def test_bytes_of_bodies_in_flight_have_a_bound(open_gateway, orchestrator):
    orchestrator.generate_scripts = [never_ends, never_ends, whole_answer]
    gateway = await open_gateway(
        orchestrator.address, max_request_bytes=10_000, max_held_bytes=30_000, drain_seconds=0
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
        orchestrator.address, max_request_bytes=10_000, max_held_bytes=30_000, drain_seconds=0
    )
    asked = {**ASKED, "prompt": [list(range(100))] * 16}
    assert (await gateway.post("/v1/completions", asked)).status_code == 200


def filled(total, owner, num_bytes=100):
    """The bytes of ``total`` that ``owner`` gets, ``num_bytes`` at a time, until refused."""
    held = Held(total, owner)
    try:
        while True:
            held.add(num_bytes)
    except ApiError:
        return held


def test_a_caller_takes_at_most_three_times_what_is_left_to_others():
    total = HeldBytes(None, 16_000)
    first = filled(total, "alice")
    assert first.num_bytes == 12_000
    second = filled(total, "bob")
    assert second.num_bytes == 3_000
    first.release()
    assert filled(total, "bob").num_bytes == 9_000
    assert filled(total, "alice", 10).num_bytes == 3_000


def test_all_requests_of_a_caller_count_together():
    total = HeldBytes(None, 16_000)
    assert [filled(total, "alice", each).num_bytes for each in (7_000, 1_000)] == [7_000, 5_000]
    assert filled(total, "bob").num_bytes == 3_000


def test_nothing_is_left_of_callers_whose_requests_have_ended():
    total = HeldBytes(None, 16_000)
    for number in range(100):
        filled(total, f"caller-{number}").release()
    assert not total._num_by_owner
    assert filled(total, "alice").num_bytes == 12_000


async def test_one_identity_cannot_shut_others_out(open_gateway, orchestrator, tokens):
    orchestrator.generate_scripts = [whole_answer]
    gateway = await open_gateway(
        orchestrator.address, tokens=tokens, max_held_bytes=2**17, max_request_bytes=2**15
    )
    alice = b"authorization: Bearer alpha"
    half = request(b"", b"content-length: 30000", alice, length=False) + b" " * 20_000
    async with AsyncExitStack() as stack:
        sent_by_alice = [await stack.enter_async_context(connected(gateway)) for _ in range(8)]
        for _, writer in sent_by_alice:
            writer.write(half)
        refused = [asyncio.create_task(answer(reader)) for reader, _ in sent_by_alice]
        await asyncio.wait(refused, return_when=asyncio.FIRST_COMPLETED)
        asked = {**ASKED, "prompt": "x" * 20_000}
        assert (await gateway.post("/v1/completions", asked, **bearer("beta"))).status_code == 200
        again = await gateway.post("/v1/completions", asked, **bearer("alpha"))
        assert (again.status_code, again.json()["error"]["code"]) == (429, "overloaded")
        for each in refused:
            each.cancel()


async def test_one_address_cannot_shut_others_out(open_gateway, orchestrator):
    orchestrator.generate_scripts = [whole_answer]
    gateway = await open_gateway(
        orchestrator.address, max_request_bytes=10_000, max_held_bytes=40_000, drain_seconds=0
    )
    part = request(b"", b"content-length: 9900", length=False) + b" " * 9_000
    async with AsyncExitStack() as stack:
        readers = []
        for _ in range(4):
            reader, writer = await stack.enter_async_context(connected(gateway, "127.0.0.2"))
            writer.write(part)
            readers.append(asyncio.create_task(answer(reader)))
        await asyncio.wait(readers, return_when=asyncio.FIRST_COMPLETED)
        asked = {**ASKED, "prompt": "x" * 9_000}
        assert (await gateway.post("/v1/completions", asked)).status_code == 200
        for each in readers:
            each.cancel()


async def test_what_has_no_effect_is_not_held(open_gateway, orchestrator):
    orchestrator.generate_scripts = [whole_answer] * 8
    gateway = await open_gateway(
        orchestrator.address, max_request_bytes=10_000, max_held_bytes=15_000, drain_seconds=0
    )
    ignored = {"user": "x" * 4_500, "metadata": {"a": "x" * 4_500}, "n": 4}
    assert (await gateway.post("/v1/completions", {**ASKED, **ignored})).status_code == 200
    chat = {"model": "toy", "messages": [{"role": "user", "content": "hello"}]}
    assert (await gateway.post("/v1/chat/completions", {**chat, **ignored})).status_code == 200
    assert completion_request({**ASKED, **ignored}).user is None
    assert chat_request({**chat, **ignored}).metadata is None


@pytest.mark.parametrize("space", [b" ", b"\n"])
async def test_a_body_that_is_read_is_not_held(open_gateway, orchestrator, space):
    orchestrator.generate_scripts = [whole_answer] * 4
    gateway = await open_gateway(
        orchestrator.address, max_request_bytes=10_000, max_held_bytes=15_000, drain_seconds=0
    )
    body = json.dumps({**ASKED, "n": 4}).encode()
    assert (await gateway.post("/v1/completions", body + space * 9_000)).status_code == 200


PATHS = {
    "/v1/completions": ({"prompt": "hello " * 99, "logprobs": 1}, "logprobs"),
    "/v1/chat/completions": ({"messages": SAID, "logprobs": True, "top_logprobs": 1}, "logprobs"),
    "/v1/responses": (
        {"input": SAID, "include": ["message.output_text.logprobs"], "top_logprobs": 1},
        "include",
    ),
}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(("num_fitting", "status"), [(2, 413), (3, 200)])
async def test_log_probabilities_of_answers_count_as_they_come(
    open_gateway, orchestrator, path, num_fitting, status
):
    given, param = PATHS[path]
    asked = {"model": "toy", **given}
    room = num_bytes({**asked, "stream": True}) + 2 * LOGPROB_BYTES * num_fitting
    gateway = await open_gateway(
        orchestrator.address, max_request_bytes=1024, max_held_bytes=room * 4 // 3 + 2
    )
    orchestrator.generate_scripts = [with_logprobs] * 2
    response = await gateway.post(path, asked)
    assert response.status_code == status
    streamed = (await gateway.post(path, {**asked, "stream": True})).text
    assert streamed.startswith(("data: ", "event: "))
    assert ("body_too_large" in streamed) == (status == 413)
    if status == 413:
        error = response.json()["error"]
        assert (error["code"], error["param"]) == ("body_too_large", param)


async def test_log_probabilities_by_which_answers_are_compared_count_for_best_of(
    open_gateway, orchestrator
):
    orchestrator.generate_scripts = [with_logprobs] * 4
    gateway = await open_gateway(
        orchestrator.address, max_request_bytes=1024, max_held_bytes=2_000, drain_seconds=0
    )
    response = await gateway.post("/v1/completions", {**ASKED, "best_of": 4})
    assert (response.status_code, response.json()["error"]["param"]) == (413, "best_of")
