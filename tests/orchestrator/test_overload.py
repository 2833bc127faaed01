"""More answers than the mesh can give: what has begun is finished, the rest is refused before."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import grpc
import grpc.aio
import pytest
from tests.orchestrator.answers import collect, request
from tests.orchestrator.peers import Drafter, Hold, Verifier, raising
from tests.servers import running_server
from tests.serving.test_refusals import NARROW

from specmesh.orchestrator.__main__ import OrchestratorService
from specmesh.orchestrator.replicas.retries.attempts import MAX_ATTEMPTS
from specmesh.orchestrator.settings import OrchestratorSettings
from specmesh.serving.errors import ResourceExhaustedStatus, error_info, retry_after_s
from specmesh.v1 import generation_pb2 as pb
from specmesh.v1.generation_pb2_grpc import GenerationServiceStub
from specmesh.verifier.__main__ import VerifierService, VerifierSettings

NUM_STREAMS = 80
NUM_TOKENS = 16
MAX_QUEUE = 8


@asynccontextmanager
async def running_mesh() -> AsyncIterator[GenerationServiceStub]:
    """A simulated target that takes one call at a time, with a short queue, over gRPC."""
    async with AsyncExitStack() as stack:
        verifier = VerifierSettings(
            backend="simulated", simulated_each_ms=10, max_queue=MAX_QUEUE, drain_seconds=0
        )
        address = await stack.enter_async_context(
            running_server(verifier, VerifierService(verifier))
        )
        orchestrator = OrchestratorSettings(
            port=0,
            verifiers=address,
            strategy="autoregressive",
            max_wait_seconds=1.0,
            drain_seconds=0,
        )
        address = await stack.enter_async_context(
            running_server(orchestrator, OrchestratorService(orchestrator))
        )
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(address))
        yield GenerationServiceStub(channel)


async def outcome(stub: GenerationServiceStub, number: int) -> str:
    """How one stream ended."""
    request = pb.GenerateRequest(
        text=f"{number}: once upon a time", stopping={"max_tokens": NUM_TOKENS}
    )
    started, num_tokens = False, 0
    try:
        async for response in stub.Generate(request, timeout=60):
            started |= response.event.HasField("started")
            num_tokens += len(response.event.chunk.token_ids)
    except grpc.aio.AioRpcError as error:
        if started:
            return f"died after {num_tokens} tokens: {error.details()}"
        info, again_s = error_info(error), retry_after_s(error)
        assert info is not None
        assert again_s is not None
        assert int(info.metadata["max_running"]) > 0
        return f"refused: {error.code().name} {info.reason}"
    assert num_tokens == NUM_TOKENS
    return "finished"


async def test_what_has_begun_is_finished_and_the_rest_is_refused_before():
    for _ in range(3):  # a busy machine may let the room shrink before sixteen have come
        async with running_mesh() as stub:
            num_finished = await num_finished_of_many(stub)
        if num_finished >= 16:
            break
    assert num_finished >= 16


async def num_finished_of_many(stub: GenerationServiceStub) -> int:
    began = asyncio.get_running_loop().time()
    outcomes = Counter(
        await asyncio.gather(*(outcome(stub, number) for number in range(NUM_STREAMS)))
    )
    assert set(outcomes) == {"finished", "refused: RESOURCE_EXHAUSTED OVERLOADED"}, outcomes
    assert asyncio.get_running_loop().time() - began < 30
    assert await outcome(stub, NUM_STREAMS) == "finished"
    return outcomes["finished"]


async def test_an_answer_that_has_begun_waits_while_queues_are_full(connect, serve):
    verifier = Verifier()
    stub = await serve(await connect([verifier], [Drafter()]))
    full = ResourceExhaustedStatus("QUEUE_FULL", "full", retry_after_s=0.001)
    verifier.faults.extend(raising(*[full] * (MAX_ATTEMPTS + 2)))
    assert (await collect(stub.Generate(request()))).finished is not None


@pytest.mark.parametrize("options", [(), NARROW], ids=["with room for all", "without room"])
async def test_a_client_that_reads_nothing_keeps_no_place_from_others(connect, serve, options):
    verifier = Verifier()
    verifier.always = held = Hold()
    behind = await connect([verifier], [Drafter()])
    stub = await serve(behind, options=options)
    unread = stub.Generate(request())
    await asyncio.wait_for(held.reached.wait(), 10)
    assert behind.mesh.admission.num_running == 1
    held.released.set()
    async with asyncio.timeout(10):
        while behind.mesh.admission.num_running:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert not unread.done()
