"""Clients of HTTP/1.0, which know no chunks."""

from __future__ import annotations

import asyncio
import json

import pytest
from tests.client.conftest import whole_answer
from tests.gateway.wire import SOON, connected, request

ASKED = {"model": "toy", "prompt": "hello"}


@pytest.mark.parametrize("wishes", [(), (b"connection: keep-alive",)])
async def test_a_stream_to_a_client_of_http_1_0_has_no_chunks(gateway, orchestrator, wishes):
    orchestrator.generate_scripts = [whole_answer] * 2
    posted = request(json.dumps({**ASKED, "stream": True}).encode(), *wishes)
    async with connected(gateway) as (reader, writer):
        writer.write(posted.replace(b"HTTP/1.1", b"HTTP/1.0"))
        head, _, body = (await asyncio.wait_for(reader.read(), SOON)).partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head
    assert b"connection: close" in head
    lines = body.decode().split("\n\n")
    assert [line[:6] for line in lines] == ["data: "] * (len(lines) - 1) + [""]
    assert lines[-2] == "data: [DONE]"


async def test_a_whole_answer_to_a_client_of_http_1_0_tells_its_length(gateway, orchestrator):
    orchestrator.generate_scripts = [whole_answer]
    async with connected(gateway) as (reader, writer):
        posted = request(json.dumps(ASKED).encode())
        writer.write(posted.replace(b"HTTP/1.1", b"HTTP/1.0"))
        head, _, body = (await asyncio.wait_for(reader.read(), SOON)).partition(b"\r\n\r\n")
    assert b"content-length: %d\r\n" % len(body) in head + b"\r\n"
    assert json.loads(body)["object"] == "text_completion"
