"""A gateway on a real socket, before an orchestrator whose every move the test writes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import httpx2
import openai
import pytest
from tests.client.conftest import FakeOrchestrator, Serve, chunks, serve, started

from specmesh.gateway.__main__ import make_server
from specmesh.gateway.http.server import HttpServer
from specmesh.gateway.settings import GatewaySettings

__all__ = ["serve"]

JSON = {"content-type": "application/json"}


async def never_ends(_: object) -> AsyncIterator[Any]:
    """An answer of two tokens and silence."""
    yield started()
    for event in chunks(0, 2):
        yield event
    await asyncio.Event().wait()


async def never_begins(_: object) -> AsyncIterator[Any]:
    """An answer that has no token yet."""
    yield started()
    await asyncio.Event().wait()


@dataclass(frozen=True, slots=True)
class Gateway:
    """A gateway that runs, and clients of it."""

    url: str
    server: HttpServer
    http: httpx2.AsyncClient
    openai: openai.AsyncOpenAI

    async def post(self, path: str, body: Any, **headers: str) -> httpx2.Response:
        """POST ``body``, as JSON unless it is bytes."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.http.post(path, content=content, headers={**JSON, **headers})

    async def events(self, path: str, body: dict[str, Any]) -> list[Any]:
        """What a stream brings, each event parsed; a stream ends with None for [DONE]."""
        response = await self.post(path, {**body, "stream": True})
        assert response.status_code == 200, response.text
        assert response.headers["content-type"].startswith("text/event-stream")
        *blocks, rest = response.text.split("\n\n")
        assert rest == ""
        assert all(block.startswith("data: ") for block in blocks)
        datas = [block.removeprefix("data: ") for block in blocks]
        return [None if data == "[DONE]" else json.loads(data) for data in datas]


Open = Callable[..., Awaitable[Gateway]]


@pytest.fixture
async def open_gateway() -> AsyncIterator[Open]:
    """Starts gateways over the orchestrator given, with the settings given."""
    async with AsyncExitStack() as stack:

        async def start(*orchestrators: str, **settings: Any) -> Gateway:
            listed = ",".join(orchestrators)
            server = make_server(GatewaySettings(orchestrators=listed, **{"port": 0} | settings))
            url = f"http://{await server.listen()}"
            stack.push_async_callback(server.stop)
            stack.push_async_callback(server.drain)
            http = await stack.enter_async_context(httpx2.AsyncClient(base_url=url, timeout=30))
            client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0)
            return Gateway(url, server, http, await stack.enter_async_context(client))

        yield start


@pytest.fixture
async def orchestrator(serve: Serve) -> FakeOrchestrator:
    """Its scripts are for the test to fill in."""
    return await serve(FakeOrchestrator())


@pytest.fixture
async def gateway(open_gateway: Open, orchestrator: FakeOrchestrator) -> Gateway:
    """Over ``orchestrator``."""
    return await open_gateway(orchestrator.address, drain_seconds=0)
