"""A connection has limits of its own, whoever is at its other end and before any token is seen."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest
from tests.client.conftest import started, whole_answer
from tests.gateway.conftest import never_ends
from tests.gateway.wire import SOON, answer, chunked, connected, request, sent, until

from specmesh.gateway.http import http_connection
from specmesh.gateway.http.connections import site_of
from specmesh.gateway.http.http_connection import MAX_HEAD_BYTES, MAX_HEADERS
from specmesh.v1 import events_pb2

ASKED = {"model": "toy", "prompt": "hello"}
BODY = json.dumps(ASKED).encode()


@pytest.fixture
def soon(monkeypatch):
    """Deadlines that a test can wait for."""
    monkeypatch.setattr(http_connection, "HEAD_SECONDS", 0.2)


@pytest.mark.parametrize(
    "beginning", [b"", b"\r\n", b"GET /hea", b"GET /health HTTP/1.1\r\nhost: x\r\n"]
)
@pytest.mark.parametrize("is_first", [True, False])
async def test_a_head_that_does_not_come_ends_the_connection(gateway, soon, beginning, is_first):
    async with connected(gateway) as (reader, writer):
        if not is_first:
            writer.write(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
            assert (await answer(reader)).status == 200
            if not beginning:
                return  # it may be idle for longer than that
        writer.write(beginning)
        came = await answer(reader)
        assert came.status == (408 if is_first and beginning.startswith(b"GET") else 0)
        assert await asyncio.wait_for(reader.read(), SOON) == b""


async def test_a_head_that_comes_byte_by_byte_has_no_more_time(gateway, soon):
    async def drip(writer):
        for byte in b"GET /health HTTP/1.1\r\n" + b"x: y\r\n" * 1000:
            writer.write(bytes([byte]))
            await asyncio.sleep(0.02)

    async with connected(gateway) as (reader, writer):
        dripping = asyncio.create_task(drip(writer))
        assert (await answer(reader)).code == "headers_timeout"
        dripping.cancel()


@pytest.mark.parametrize("num_writes", [1, 20])
@pytest.mark.parametrize(
    "header",
    [
        b"x: y\r\n" * (MAX_HEADERS + 1),
        b"authorization: Bearer " + b"t" * MAX_HEAD_BYTES + b"\r\n",
        b"".join(b"x%d: %s\r\n" % (n, b"y" * 1000) for n in range(40)),
        b"x: " + b"y" * 3 * MAX_HEAD_BYTES,  # and no end
    ],
)
async def test_a_head_that_is_too_large_is_refused_however_it_comes(gateway, header, num_writes):
    head = b"GET /v1/models HTTP/1.1\r\nhost: x\r\n" + header + b"\r\n"
    step = len(head) // num_writes + 1
    async with connected(gateway) as (reader, writer):
        for at in range(0, len(head), step):
            writer.write(head[at : at + step])
            await asyncio.sleep(0)
        came = await answer(reader)
    # What a closed connection still receives can make the kernel drop what was sent before.
    assert came.status == 431
    assert came.status == 0 or came.code == "headers_too_large"


async def test_a_head_within_the_limits_is_taken(gateway):
    headers = b"".join(b"x%d: %s\r\n" % (n, b"y" * 300) for n in range(MAX_HEADERS - 1))
    for path in (b"/health", b"/health?" + b"x" * 2000):
        head = b"GET " + path + b" HTTP/1.1\r\nhost: x\r\n" + headers + b"\r\n"
        assert (await sent(gateway, head)).status == 200


async def test_trailers_count_as_headers(gateway):
    body = chunked(iter([BODY])).removesuffix(b"\r\n") + b"x: y\r\n" * MAX_HEADERS + b"\r\n"
    posted = request(b"", b"transfer-encoding: chunked", length=False) + body
    assert (await sent(gateway, posted)).status == 431


async def test_a_body_in_chunks_is_taken_and_one_in_tiny_ones_refused(gateway, orchestrator):
    orchestrator.generate_scripts = [whole_answer] * 2
    head = request(b"", b"transfer-encoding: chunked", length=False)
    padded = BODY + b" " * 4000
    for size in (1000, 5):
        pieces = (padded[at : at + size] for at in range(0, len(padded), size))
        assert (await sent(gateway, head + chunked(pieces))).status == 200
    tiny = (b" " for _ in range(100_000))
    assert (await sent(gateway, head + chunked(tiny))).status == 400


UPGRADES = {
    "h2c": (b"connection: Upgrade, HTTP2-Settings", b"http2-settings: AAMAAABk", b"upgrade: h2c"),
    "websocket": (b"upgrade: websocket", b"connection: upgrade"),
    "tls": (b"upgrade: TLS/1.0", b"connection: upgrade"),
    "and close": (b"upgrade: h2c", b"connection: upgrade, close"),
}


@pytest.mark.parametrize("upgrade", UPGRADES.values(), ids=UPGRADES)
@pytest.mark.parametrize("num_writes", [1, 20])
async def test_who_asks_for_another_protocol_is_answered_in_this_one(
    gateway, orchestrator, caplog, upgrade, num_writes
):
    orchestrator.generate_scripts = [whole_answer] * 2
    in_chunks = request(b"", b"transfer-encoding: chunked", *upgrade, length=False)
    for posted in (request(BODY, *upgrade), in_chunks + chunked(iter([BODY]))):
        async with connected(gateway) as (reader, writer):
            step = len(posted) // num_writes + 1
            for at in range(0, len(posted), step):
                writer.write(posted[at : at + step])
                await writer.drain()
            assert (await answer(reader)).status == 200
            if b"close" not in upgrade[-1]:
                writer.write(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
                assert (await answer(reader)).status == 200
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]


async def test_those_that_wait_on_a_connection_are_answered_in_turn(gateway, orchestrator):
    orchestrator.generate_scripts = [whole_answer] * 100
    async with connected(gateway) as (reader, writer):
        writer.write(request(BODY, *UPGRADES["h2c"]) * 3)
        for _ in range(3):
            assert (await answer(reader)).status == 200
    async with connected(gateway) as (reader, writer):
        writer.write(request(BODY, *UPGRADES["h2c"]) * 30)
        assert len(await asyncio.wait_for(reader.read(), SOON)) < 9 * 1000
    assert len(orchestrator.requests) < 13


async def test_a_head_with_another_protocol_is_refused_as_any_other(gateway, orchestrator):
    for upgrade in UPGRADES.values():
        both = request(chunked(iter([BODY])), b"transfer-encoding: chunked", *upgrade)
        assert (await sent(gateway, both)).code == "invalid_http"
        head = request(b"", b"transfer-encoding: chunked", *upgrade, length=False)
        trailers = b"0\r\n" + b"x: y\r\n" * MAX_HEADERS + b"\r\n"
        assert (await sent(gateway, head + trailers)).status == 431
    assert orchestrator.requests == []


async def test_a_length_beside_a_transfer_encoding_is_refused(gateway, orchestrator):
    for encoding in (b"chunked", b"identity", b"gzip, chunked"):
        body = chunked(iter([BODY]))
        posted = request(body, b"transfer-encoding: " + encoding)
        assert (await sent(gateway, posted)).code == "invalid_http"
    assert orchestrator.requests == []


@pytest.mark.parametrize(
    "sent_first", [b"\x16\x03\x01\x02", b"HELLO\r\n\r\n", b"GET / HTTP/9\r\n\r\n"]
)
async def test_what_is_no_http_is_told_so(gateway, sent_first):
    came = await sent(gateway, sent_first)
    assert (came.status, came.code) == (400, "invalid_http")


async def test_requests_that_wait_on_a_connection_have_a_bound(gateway, orchestrator):
    orchestrator.generate_scripts = [whole_answer] * 100
    async with connected(gateway) as (reader, writer):
        writer.write(request(BODY) * 3)
        for _ in range(3):
            assert (await answer(reader)).status == 200
    async with connected(gateway) as (reader, writer):
        writer.write(request(BODY) * 30)
        assert len(await asyncio.wait_for(reader.read(), SOON)) < 9 * 1000
    assert len(orchestrator.requests) < 13


async def test_connections_have_a_bound(open_gateway, orchestrator):
    gateway = await open_gateway(orchestrator.address, max_connections=2, drain_seconds=0)
    async with connected(gateway), connected(gateway), connected(gateway) as (reader, _):
        came = await answer(reader)
        assert (came.status, came.code) == (429, "overloaded")
        assert b"retry-after: 1" in came.head
    async with asyncio.timeout(SOON):
        while (await sent(gateway, b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")).status != 200:
            pass


@pytest.mark.parametrize("limit", ["max_connections", "max_connections_per_address"])
async def test_idle_connections_make_way_for_new_ones(open_gateway, orchestrator, limit):
    gateway = await open_gateway(orchestrator.address, **{limit: 2}, drain_seconds=0)
    asking = b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n"
    async with connected(gateway) as first, connected(gateway) as second:
        for reader, writer in (first, second):
            writer.write(asking)
            assert (await answer(reader)).status == 200
        second[1].write(asking)
        assert (await answer(second[0])).status == 200
        assert (await sent(gateway, asking)).status == 200
        assert await asyncio.wait_for(first[0].read(), SOON) == b""
        second[1].write(asking)
        assert (await answer(second[0])).status == 200


async def test_who_is_answered_makes_no_way(open_gateway, orchestrator, caplog):
    orchestrator.generate_scripts.append(never_ends)
    gateway = await open_gateway(orchestrator.address, max_connections=1, drain_seconds=0)
    async with connected(gateway) as (_, writer), asyncio.timeout(SOON):
        writer.write(request(BODY))
        while not orchestrator.requests:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.01)
        assert (await sent(gateway, request(BODY))).code == "overloaded"
    assert "connection refused" in caplog.text


async def test_an_address_has_a_bound_of_its_own(open_gateway, orchestrator):
    gateway = await open_gateway(
        orchestrator.address, max_connections_per_address=1, drain_seconds=0
    )
    async with connected(gateway), connected(gateway) as (reader, _):
        assert (await answer(reader)).code == "overloaded"


def test_an_address_of_ipv6_is_itssite_of():
    assert site_of("2001:db8::1") == site_of("2001:db8::ffff:1") != site_of("2001:db8:0:1::1")
    assert site_of("10.0.0.1") != site_of("10.0.0.2")
    assert site_of("fe80::1%eth0") == site_of("fe80::2")


async def test_a_body_that_nobody_wants_any_more_does_not_keep_the_connection(gateway, soon):
    async with connected(gateway) as (reader, writer):
        writer.write(request(b"", b"content-length: 1000000000", length=False))
        assert (await answer(reader)).code == "body_too_large"

        async def goes_on():
            while True:
                writer.write(b" " * 1000)
                await writer.drain()
                await asyncio.sleep(0.02)

        going_on = asyncio.create_task(goes_on())
        with pytest.raises(ConnectionError):
            await asyncio.wait_for(going_on, SOON)


def floods(num_chunks, gone):
    """A script of ``num_chunks`` of ten thousand characters."""

    async def script(_):
        try:
            yield started()
            for index in range(num_chunks):
                chunk = events_pb2.GenerationChunk(
                    first_index=index, token_ids=[1], text="x" * 10_000
                )
                yield events_pb2.GenerationEvent(chunk=chunk)
        finally:
            gone.set()

    return script


async def test_clients_that_do_not_read_lose_their_connections(open_gateway, orchestrator, caplog):
    gone = asyncio.Event()
    orchestrator.generate_scripts = [floods(100_000, gone)]
    gateway = await open_gateway(orchestrator.address, stall_seconds=0.2, drain_seconds=0)
    async with connected(gateway) as (_, writer), asyncio.timeout(SOON):
        writer.write(request(json.dumps({**ASKED, "stream": True}).encode()))
        await gone.wait()
        await until(lambda: not gateway.server.num_connections)
    assert "client does not read" in [record.getMessage() for record in caplog.records]


async def test_a_whole_answer_that_is_not_read_is_no_different(open_gateway, orchestrator):
    gone = asyncio.Event()

    async def long_answer(context):
        async for event in floods(1000, gone)(context):
            yield event
        async for event in whole_answer(context):
            if event.HasField("finished"):
                yield event

    orchestrator.generate_scripts = [long_answer]
    gateway = await open_gateway(orchestrator.address, stall_seconds=0.2, drain_seconds=0)
    async with connected(gateway) as (reader, writer), asyncio.timeout(SOON):
        writer.write(request(BODY))
        await reader.readuntil(b"\r\n\r\n")
        await until(lambda: not gateway.server.num_connections)


async def test_who_reads_slowly_is_not_cut_off(open_gateway, orchestrator):
    async def long_answer(context):
        async for event in floods(1000, asyncio.Event())(context):
            yield event
        async for event in whole_answer(context):
            if event.HasField("finished"):
                yield event

    orchestrator.generate_scripts = [long_answer]
    gateway = await open_gateway(orchestrator.address, stall_seconds=0.2, drain_seconds=0)
    async with connected(gateway) as (reader, writer), asyncio.timeout(SOON):
        writer.write(request(BODY))
        await reader.readuntil(b"\r\n\r\n")
        num_read = 0
        while num_read < 10_000_000:
            num_read += len(await reader.read(2**19))
            await asyncio.sleep(0.02)


def requests_logged(caplog):
    return [record for record in caplog.records if record.getMessage() == "request"]


async def test_a_hang_up_in_mid_upload_is_the_clients_doing(gateway, caplog):
    caplog.set_level(logging.INFO)
    async with connected(gateway) as (_, writer):
        writer.write(request(b"", b"content-length: 1000", length=False) + b'{"model":')
        await writer.drain()
        await asyncio.sleep(0.05)
    await until(lambda: requests_logged(caplog))
    lines = requests_logged(caplog)
    assert (lines[0].status, lines[0].outcome) == (499, "cancelled")
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_hang_up_later_is_told_as_one_too(gateway, orchestrator, caplog, stream):
    caplog.set_level(logging.INFO)
    orchestrator.generate_scripts = [never_ends]
    async with connected(gateway) as (_, writer):
        writer.write(request(json.dumps({**ASKED, "stream": stream}).encode()))
        await until(lambda: orchestrator.requests)
    await until(lambda: requests_logged(caplog))
    assert requests_logged(caplog)[0].outcome == "cancelled"
