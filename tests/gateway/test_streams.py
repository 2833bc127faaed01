"""Streams and their clients: who hangs up, who doesn't read, and who waits."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager, suppress

import pytest
from tests.client.conftest import TOKENS, chunks, started, whole_answer
from tests.gateway.conftest import never_begins, never_ends

from specmesh.v1 import events_pb2

ASKED = {"model": "toy", "prompt": "hello"}
SOON = 10


@asynccontextmanager
async def connected(gateway, asked, path="/v1/completions"):
    """A connection on which ``asked`` has been sent."""
    host, port = gateway.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, port)
    body = json.dumps(asked).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    writer.write(head.encode() + body)
    try:
        yield reader, writer
    finally:
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize("script", [never_begins, never_ends])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_hangs_up_cancels_its_answer(gateway, orchestrator, script, stream):
    begun, ended = asyncio.Event(), asyncio.Event()

    async def noted(context):
        begun.set()
        try:
            async for event in script(context):
                yield event
        finally:
            ended.set()

    orchestrator.generate_scripts = [noted]
    async with connected(gateway, {**ASKED, "stream": stream}), asyncio.timeout(SOON):
        await begun.wait()
    async with asyncio.timeout(SOON):
        await ended.wait()


async def test_a_client_that_hangs_up_in_the_midst_of_a_stream_cancels_its_answer(
    gateway, orchestrator
):
    orchestrator.generate_scripts = [never_ends]
    async with connected(gateway, {**ASKED, "stream": True}) as (reader, _):
        await asyncio.wait_for(reader.readuntil(b'"text":"100 101 "'), SOON)
    async with asyncio.timeout(SOON):
        await orchestrator.cancelled.wait()


async def test_openais_client_cancels_by_closing_the_stream(gateway, orchestrator):
    orchestrator.generate_scripts = [never_ends]
    stream = await gateway.openai.completions.create(**ASKED, stream=True)
    assert (await anext(aiter(stream))).choices[0].text == "100 101 "
    await stream.close()
    async with asyncio.timeout(SOON):
        await orchestrator.cancelled.wait()


async def test_a_silent_stream_begins_and_shows_that_it_lives(open_gateway, orchestrator):
    orchestrator.generate_scripts = [never_begins]
    gateway = await open_gateway(orchestrator.address, ping_seconds=0.05, drain_seconds=0)
    async with connected(gateway, {**ASKED, "stream": True}) as (reader, _):
        await asyncio.wait_for(reader.readuntil(b" 200 OK\r\n"), SOON)
        for _ in range(2):
            await asyncio.wait_for(reader.readuntil(b": ping"), SOON)


async def test_usage_so_far_is_null_before_an_answer_begins(open_gateway, orchestrator):
    async def waits(_):
        await asyncio.Event().wait()
        yield started()

    orchestrator.generate_scripts = [waits]
    gateway = await open_gateway(orchestrator.address, ping_seconds=0.02, drain_seconds=0)
    options = {"include_usage": True, "continuous_usage_stats": True}
    messages = [{"role": "user", "content": "hello"}]
    asked = {"model": "toy", "messages": messages, "stream": True, "stream_options": options}
    async with connected(gateway, asked, "/v1/chat/completions") as (reader, _):
        await asyncio.wait_for(reader.readuntil(b'"usage":null}'), SOON)


async def test_comments_end_no_event(open_gateway, orchestrator):
    orchestrator.generate_scripts = [never_begins]
    gateway = await open_gateway(orchestrator.address, ping_seconds=0.02, drain_seconds=0)
    async with connected(gateway, {**ASKED, "stream": True}) as (reader, _):
        await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), SOON)
        sent = b""
        async with asyncio.timeout(SOON):
            while sent.count(b": ping") < 7:
                size = int(await reader.readline(), 16)
                sent += (await reader.readexactly(size + 2))[:-2]
    # A blank line would end an event: strict clients would be told of seven empty ones.
    assert sent == b": ping\n" * 7


async def test_a_stream_that_talks_gets_no_comments(open_gateway, orchestrator):
    async def talks(context):
        yield started()
        for event in chunks(0, len(TOKENS)):
            await asyncio.sleep(0.2)
            yield event
        async for event in whole_answer(context):
            if event.HasField("finished"):
                yield event

    orchestrator.generate_scripts = [talks]
    gateway = await open_gateway(orchestrator.address, ping_seconds=0.8)
    *_, done = await gateway.events("/v1/completions", ASKED)  # which takes no comments
    assert done is None


async def test_comments_are_no_chunks_to_openais_client(open_gateway, orchestrator):
    async def slow(context):
        yield started()
        for event in chunks(0, 4):
            await asyncio.sleep(0.1)
            yield event
        async for event in whole_answer(context):
            if event.HasField("finished"):
                yield event

    orchestrator.generate_scripts = [slow]
    gateway = await open_gateway(orchestrator.address, ping_seconds=0.02)
    stream = await gateway.openai.completions.create(**ASKED, stream=True)
    assert "".join([part.choices[0].text async for part in stream]) == "100 101 102 103 "


async def test_a_client_that_does_not_read_is_cut_off_and_its_answer_cancelled(
    open_gateway, orchestrator
):
    gone = asyncio.Event()

    async def floods(_):
        try:
            yield started()
            for index in range(100_000):
                chunk = events_pb2.GenerationChunk(
                    first_index=index, token_ids=[1], text="x" * 10_000
                )
                yield events_pb2.GenerationEvent(chunk=chunk)
        finally:
            gone.set()

    orchestrator.generate_scripts = [floods]
    gateway = await open_gateway(orchestrator.address, stall_seconds=0.2, drain_seconds=0)
    async with connected(gateway, {**ASKED, "stream": True}), asyncio.timeout(SOON):
        await gone.wait()


async def test_what_runs_ends_while_the_gateway_drains_and_nothing_new_is_taken_in(
    open_gateway, orchestrator
):
    go_on = asyncio.Event()

    async def waits(context):
        yield started()
        for event in chunks(0, 2):
            yield event
        await go_on.wait()
        async for event in whole_answer(context):
            if event.HasField("finished"):
                yield event

    orchestrator.generate_scripts = [waits]
    gateway = await open_gateway(orchestrator.address, drain_seconds=SOON)
    async with connected(gateway, {**ASKED, "stream": True}) as (reader, _):
        await asyncio.wait_for(reader.readuntil(b'"text":"100 101 "'), SOON)
        draining = asyncio.create_task(gateway.server.drain())
        host, port = gateway.url.removeprefix("http://").split(":")
        async with asyncio.timeout(SOON):
            while True:
                try:
                    _, other = await asyncio.open_connection(host, port)
                except ConnectionError:
                    break
                other.close()
                with suppress(ConnectionError):
                    await other.wait_closed()
        go_on.set()
        await asyncio.wait_for(reader.readuntil(b"data: [DONE]\n\n"), SOON)
        await draining


async def test_what_takes_longer_than_the_drain_is_broken_off(open_gateway, orchestrator):
    orchestrator.generate_scripts = [never_ends]
    gateway = await open_gateway(orchestrator.address, drain_seconds=0)
    async with connected(gateway, {**ASKED, "stream": True}) as (reader, _):
        await asyncio.wait_for(reader.readuntil(b'"text":"100 101 "'), SOON)
        await asyncio.wait_for(gateway.server.drain(), SOON)
        await asyncio.wait_for(orchestrator.cancelled.wait(), SOON)
        rest = (await reader.read()).decode()
    # The last event is an error, and the body ends as it should.
    error = {"message": "the gateway is shutting down", "type": "server_error", "param": None}
    told = json.loads(rest.rpartition("data: ")[2].partition("\n")[0])
    assert told == {"error": {**error, "code": "unavailable"}}
    assert rest.endswith("\r\n0\r\n\r\n")


async def test_what_is_asked_for_whole_and_broken_off_may_be_asked_for_elsewhere(
    open_gateway, orchestrator
):
    begun = asyncio.Event()

    async def noted(context):
        begun.set()
        async for event in never_ends(context):
            yield event

    orchestrator.generate_scripts = [noted]
    gateway = await open_gateway(orchestrator.address, drain_seconds=0)
    asking = asyncio.create_task(gateway.post("/v1/completions", ASKED))
    async with asyncio.timeout(SOON):
        await begun.wait()
        await gateway.server.drain()
        response = await asking
    assert (response.status_code, response.json()["error"]["code"]) == (503, "unavailable")
    assert (response.headers["x-should-retry"], response.headers["retry-after"]) == ("true", "1")


async def test_whether_the_connection_of_a_stream_stays_open_is_told_once(gateway, orchestrator):
    orchestrator.generate_scripts = [whole_answer]
    asked = {**ASKED, "stream": True}
    response = await gateway.post("/v1/completions", asked, connection="close")
    assert response.headers.get_list("connection") == ["close"]


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/v1/responses"])
@pytest.mark.parametrize("stream", [False, True])
async def test_tokens_wait_for_others_where_the_answer_is_sent_whole(
    gateway, orchestrator, path, stream
):
    orchestrator.generate_scripts = [whole_answer]
    asked = {
        "/v1/completions": {"prompt": "hello"},
        "/v1/chat/completions": {"messages": [{"role": "user", "content": "hello"}]},
        "/v1/responses": {"input": "hello"},
    }
    response = await gateway.post(path, {"model": "toy", "stream": stream, **asked[path]})
    assert response.status_code == 200
    (told,) = orchestrator.metadata
    assert told.get("specmesh-chunk-interval-ms") == (None if stream else "250")
