"""A gateway that is about to end: health says so, and connections close with the next answer."""

from __future__ import annotations

import asyncio

import httpx2
import pytest
from tests.gateway.wire import SOON, answer, connected, request


@pytest.mark.parametrize("path", ["/healthz", "/health"])
async def test_a_gateway_that_leaves_is_not_healthy(gateway, path):
    assert (await gateway.http.get(path)).status_code == 200
    await gateway.server.leave()
    response = await gateway.http.get(path)
    assert (response.status_code, response.json()) == (503, {"status": "shutting down"})


async def test_a_gateway_that_leaves_answers_once_more_on_each_connection(gateway):
    before = await gateway.http.get("/v1/models")
    await gateway.server.leave()
    for client in (gateway.http, httpx2.AsyncClient(base_url=gateway.url)):
        after = await client.get("/v1/models")
        assert after.json() == before.json()
        assert after.headers["connection"] == "close"
    await client.aclose()


async def test_a_body_that_still_arrives_at_the_end_of_the_drain_gets_an_error(gateway):
    async with connected(gateway) as (reader, writer):
        writer.write(request(b"{}", b"expect: 100-continue")[:-1])
        await asyncio.wait_for(reader.readuntil(b" 100 Continue\r\n\r\n"), SOON)
        await asyncio.wait_for(gateway.server.drain(), SOON)
        came = await answer(reader)
    assert (came.status, came.code) == (503, "unavailable")
