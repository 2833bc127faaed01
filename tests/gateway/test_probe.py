"""A gateway is ready as long as an orchestrator serves it, and says why if none does."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from contextlib import AsyncExitStack

import grpc
import pytest
from tests.client.conftest import FakeOrchestrator, refuses
from tests.orchestrator.peers import Verifier
from tests.servers import running_server

from specmesh.orchestrator.__main__ import OrchestratorService
from specmesh.orchestrator.settings import OrchestratorSettings
from specmesh.serving.startup import CannotStart

WRONG_ROLE = refuses(grpc.StatusCode.PERMISSION_DENIED, "a verifier may not call", "WRONG_ROLE")
UNAUTHENTICATED = refuses(grpc.StatusCode.UNAUTHENTICATED, "who?", "UNAUTHENTICATED")
BUSY = refuses(grpc.StatusCode.RESOURCE_EXHAUSTED, "full", "OVERLOADED")


class Guarded(FakeOrchestrator):
    """Refuses to list models by a script, if it has one."""

    refusal = None

    async def ListModels(self, request, context):  # noqa: N802
        if self.refusal is not None:
            async for _ in self.refusal(context):
                pass
        return await super().ListModels(request, context)


def listed(path, *tokens):
    """A file of tokens, each with its own text as its name and with further fields."""
    entries = [
        {"name": token, "sha256": hashlib.sha256(token.encode()).hexdigest(), **more}
        for token, more in tokens
    ]
    path.write_text(json.dumps(entries))
    return path


@pytest.fixture
def tokens(tmp_path):
    """The tokens by which a gateway knows its callers."""
    return listed(tmp_path / "callers.json", ("alice", {}))


@pytest.fixture
async def guarded(serve):
    return await serve(Guarded())


async def health(gateway):
    response = await gateway.http.get("/healthz")
    return response.status_code, response.json()["status"]


NOT_SERVED = (503, "no orchestrator serves this gateway")
OK = (200, "ok")


@pytest.mark.parametrize(
    ("refusal", "knows_callers", "told"),
    [
        (WRONG_ROLE, False, NOT_SERVED),
        (WRONG_ROLE, True, NOT_SERVED),
        (UNAUTHENTICATED, True, NOT_SERVED),
        (UNAUTHENTICATED, False, OK),  # callers' tokens are asked for
        (BUSY, True, OK),
    ],
)
async def test_a_gateway_that_is_refused_itself_is_not_ready(
    open_gateway, guarded, tokens, refusal, knows_callers, told
):
    guarded.refusal = refusal
    gateway = await open_gateway(guarded.address, tokens=tokens if knows_callers else None)
    assert await health(gateway) == told
    guarded.refusal = None
    assert await health(gateway) == OK


async def test_it_is_logged_once_why_a_gateway_is_refused(open_gateway, guarded, caplog):
    caplog.set_level(logging.INFO, "specmesh.gateway.probe")
    guarded.refusal = WRONG_ROLE
    gateway = await open_gateway(guarded.address)
    for _ in range(3):
        await health(gateway)
    (line,) = caplog.records
    assert line.getMessage() == "orchestrators refuse the gateway"
    assert "a verifier may not call" in line.reason
    guarded.refusal = None
    await health(gateway)
    assert [each.levelname for each in caplog.records] == ["ERROR", "INFO"]


async def test_a_gateway_without_its_token_is_not_ready(open_gateway, guarded, tokens, tmp_path):
    file = tmp_path / "token"
    gateway = await open_gateway(guarded.address, tokens=tokens, mesh_token_file=file)
    assert await health(gateway) == NOT_SERVED
    file.write_text("secret")
    assert await health(gateway) == OK


async def test_a_token_that_is_not_utf8_is_found_at_the_start(open_gateway, tokens, tmp_path):
    file = tmp_path / "token"
    file.write_bytes("secret".encode("utf-16"))
    with pytest.raises(CannotStart, match=f"^--mesh-token-file: {file} is not UTF-8$"):
        await open_gateway("127.0.0.1:1", tokens=tokens, mesh_token_file=file)


async def test_a_gateway_needs_a_token_of_a_gateway(open_gateway, tokens, tmp_path):
    accepted = listed(tmp_path / "accepted.json", ("client", {}), ("gateway", {"role": "gateway"}))
    found = {}
    async with AsyncExitStack() as stack:
        verifier = Verifier()
        await verifier.start()
        stack.push_async_callback(verifier.die)
        settings = OrchestratorSettings(
            port=0, verifiers=verifier.address, tokens=accepted, drain_seconds=0
        )
        server = running_server(settings, OrchestratorService(settings))
        address = await stack.enter_async_context(server)
        for token in ("unknown", "client", "gateway"):
            (tmp_path / token).write_text(token)
            gateway = await open_gateway(address, tokens=tokens, mesh_token_file=tmp_path / token)
            found[token] = await health(gateway)
    assert found == {"unknown": NOT_SERVED, "client": NOT_SERVED, "gateway": OK}


async def test_a_gateway_is_ready_though_its_orchestrator_has_lost_its_verifiers(open_gateway):
    verifier = Verifier()
    await verifier.start()
    settings = OrchestratorSettings(port=0, verifiers=verifier.address, drain_seconds=0)
    service = OrchestratorService(settings)
    async with running_server(settings, service) as address:
        lost = asyncio.Event()
        with service.watched(lost.set):
            await verifier.die()
            await asyncio.wait_for(lost.wait(), 10)
        assert not service.can_answer()
        assert await health(await open_gateway(address)) == OK
