"""Who asks while no replica of the target is up is told within seconds, however he asks."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from tests.gateway.conftest import open_gateway
from tests.orchestrator.answers import NUM_TOKENS, PROMPT, alone, collect, refusal, request
from tests.orchestrator.conftest import until
from tests.orchestrator.face import face
from tests.orchestrator.peers import Drafter, Hold, Verifier, passing

from specmesh.client import AsyncClient, BrokenCall, Hooks, Unavailable
from specmesh.orchestrator.replicas.pool import replica_pool as pool

__all__ = ["open_gateway"]

NO_VERIFIER = (grpc.StatusCode.UNAVAILABLE, "NO_VERIFIER")
PATIENCE_S = 0.4


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(pool, "NO_PEER_SECONDS", PATIENCE_S)


@pytest.fixture
def verifier() -> Verifier:
    return Verifier()


@pytest.fixture
async def behind(connect, verifier):
    return await connect([verifier], [Drafter()])


async def lose(behind, verifier) -> None:
    await verifier.die()
    (peer,) = behind.mesh.verifiers.peers
    await until(lambda: not peer.ready, peer)


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_an_answer_does_not_begin_and_is_waited_for_once(serve, behind, verifier):
    stub = await serve(behind)
    await lose(behind, verifier)
    lost = now()
    call = stub.Generate(request())
    assert await refusal(call) == NO_VERIFIER
    assert now() - lost >= 0.9 * PATIENCE_S
    # By now nobody waits: ten take no longer than one.
    began = now()
    for _ in range(10):
        assert await refusal(stub.Generate(request())) == NO_VERIFIER
    assert now() - began < 10 * PATIENCE_S


async def test_a_verifier_that_comes_back_in_time_answers(serve, behind, verifier, monkeypatch):
    monkeypatch.setattr(pool, "NO_PEER_SECONDS", 30.0)
    stub = await serve(behind)
    await lose(behind, verifier)
    answer = asyncio.create_task(collect(stub.Generate(request())))
    await asyncio.sleep(0.05)
    await verifier.start()
    assert (await answer).tokens == alone(request().sampling)


async def test_a_client_is_told_the_reason_long_before_its_deadline(behind, verifier):
    async with face(behind) as clients:
        await lose(behind, verifier)
        began = now()
        async with AsyncClient(clients.address) as client:
            with pytest.raises(Unavailable) as raised:
                await client.generate("hello", timeout_s=60)
    assert raised.value.reason == "NO_VERIFIER"
    assert now() - began < 15


@pytest.mark.parametrize("stream", [True, False])
async def test_a_gateway_says_503(behind, verifier, open_gateway, stream):
    async with face(behind) as clients:
        gateway = await open_gateway(clients.address)
        await lose(behind, verifier)
        body = {"model": "toy", "prompt": "hello", "stream": stream}
        response = await gateway.post("/v1/completions", body)
    assert (response.status_code, response.json()["error"]["code"]) == (503, "no_verifier")


async def test_an_answer_that_loses_all_verifiers_goes_on_when_one_is_back(behind, verifier):
    third = Hold()
    verifier.faults.extend([passing, passing, third])
    told: list[str] = []
    refused = asyncio.Event()

    def resumes(broken: BrokenCall) -> None:
        told.append(broken.error.reason)
        refused.set()

    hooks = Hooks(on_resume=resumes)
    async with face(behind) as clients, AsyncClient(clients.address, hooks=hooks) as client:
        stream = client.generate(PROMPT, temperature=0, max_tokens=NUM_TOKENS)

        async def whole() -> tuple[int, ...]:
            return (await stream).token_ids

        answer = asyncio.create_task(whole())
        await asyncio.wait_for(third.reached.wait(), 10)
        await lose(behind, verifier)
        await asyncio.wait_for(refused.wait(), 10)
        await verifier.start()
        assert list(await answer) == alone(request().sampling)
    assert set(told) == {"NO_VERIFIER"}
