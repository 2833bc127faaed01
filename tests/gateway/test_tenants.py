"""Callers whom a gateway tells apart are apart for the orchestrator behind it, too."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.conftest import Gateway, Open
from tests.orchestrator.answers import NUM_TOKENS, PROMPT
from tests.orchestrator.peers import Hold, Verifier
from tests.servers import running_server

from specmesh.orchestrator.__main__ import OrchestratorService
from specmesh.orchestrator.settings import OrchestratorSettings

ASKED = {"prompt": PROMPT, "max_tokens": NUM_TOKENS, "temperature": 0}
OpenMesh = Callable[..., Awaitable[Gateway]]


@pytest.fixture
async def verifier() -> AsyncIterator[Verifier]:
    verifier = Verifier()
    await verifier.start()
    yield verifier
    await verifier.die()


@pytest.fixture
async def open_mesh(
    verifier: Verifier, open_gateway: Open, tmp_path: Path
) -> AsyncIterator[OpenMesh]:
    """Starts an orchestrator, with the settings given, and before it a gateway that knows alice
    and bob."""
    tokens = tmp_path / "tokens.json"
    listed = [
        {"name": name, "sha256": hashlib.sha256(name.encode()).hexdigest()}
        for name in ("alice", "bob")
    ]
    tokens.write_text(json.dumps(listed))
    async with AsyncExitStack() as stack:

        async def start(**more: Any) -> Gateway:
            fixed = {"port": 0, "verifiers": verifier.address, "strategy": "autoregressive"}
            settings = OrchestratorSettings(**fixed, drain_seconds=0, **more)
            server = running_server(settings, OrchestratorService(settings))
            address = await stack.enter_async_context(server)
            return await open_gateway(address, tokens=tokens, drain_seconds=0)

        yield start


async def ask(gateway: Gateway, name: str) -> Any:
    bearer = {"authorization": f"Bearer {name}"}
    models = await gateway.http.get("/v1/models", headers=bearer)
    model = models.json()["data"][0]["id"]
    return await gateway.post("/v1/completions", {**ASKED, "model": model}, **bearer)


async def test_prefixes_of_its_callers_have_salts_of_their_own(
    open_mesh: OpenMesh, verifier: Verifier
):
    gateway = await open_mesh()
    salts = []
    for name in ("alice", "alice", "bob"):
        verifier.requests.clear()
        assert (await ask(gateway, name)).status_code == 200
        salts.append({request.prefix.salt for request in verifier.requests})
    alice, again, bob = salts
    assert alice == again != bob
    assert b"" not in alice | bob


async def test_each_of_its_callers_has_limits_of_its_own(open_mesh: OpenMesh, verifier: Verifier):
    gateway = await open_mesh(max_answers_per_identity=1)
    verifier.always = hold = Hold()
    running = asyncio.create_task(ask(gateway, "alice"))
    await hold.reached.wait()
    refused = await ask(gateway, "alice")
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "limit_reached")
    hold.released.set()
    assert (await ask(gateway, "bob")).status_code == 200
    assert (await running).status_code == 200


async def test_the_orchestrators_log_names_its_callers(
    open_mesh: OpenMesh, caplog: pytest.LogCaptureFixture
):
    gateway = await open_mesh()
    with caplog.at_level(logging.INFO, "specmesh.orchestrator"):
        await ask(gateway, "bob")
    named = [vars(each).get("identity") for each in caplog.records]
    assert "token:bob" in named
