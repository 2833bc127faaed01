"""An answer begins where every replica could finish it, and is finished where one can."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable
from dataclasses import dataclass

import grpc
import pytest
from tests.orchestrator.answers import (
    NUM_TOKENS,
    PROMPT_IDS,
    Answer,
    collect,
    refusal,
    request,
    resuming,
)
from tests.orchestrator.conftest import until
from tests.orchestrator.peers import Drafter, Hold, Verifier, passing

from specmesh.orchestrator.replicas.pool import replica_pool as pool
from specmesh.v1 import generation_pb2 as pb
from specmesh.v1 import generation_pb2_grpc

FITS = len(PROMPT_IDS) + NUM_TOKENS
REJECTION = {"temperature": 0.8, "seed": 11, "acceptance_mode": "ACCEPTANCE_MODE_REJECTION"}
Stub = generation_pb2_grpc.GenerationServiceStub
CarryOn = Callable[[Stub, pb.GenerateRequest, Answer], AsyncIterable[object]]


@dataclass(frozen=True)
class Lack:
    """A request, what its replicas have when it begins, and what those that join later have."""

    asked: pb.GenerateRequest
    theirs: dict[str, object]
    less: dict[str, object]


LACKS = {
    "kv": Lack(request(), {"kv_capacity_tokens": FITS}, {"kv_capacity_tokens": FITS - 8}),
    "kv without max_tokens": Lack(
        request(stopping={}),
        {"kv_capacity_tokens": FITS},
        {"kv_capacity_tokens": len(PROMPT_IDS) + 1},
    ),
    "rejection mode": Lack(request(sampling=REJECTION), {}, {"features": []}),
    "log-probabilities": Lack(request(num_top_logprobs=1), {}, {"features": []}),
}


def from_store(stub: Stub, asked: pb.GenerateRequest, begun: Answer) -> AsyncIterable[object]:
    return stub.Resume(resuming(begun))


def from_client(stub: Stub, asked: pb.GenerateRequest, begun: Answer) -> AsyncIterable[object]:
    rest = pb.GenerateRequest()
    rest.CopyFrom(asked)
    rest.received.CopyFrom(begun.received)
    rest.received.max_tokens = begun.started.max_tokens
    rest.epoch = begun.started.epoch + 1
    return stub.Generate(rest)


async def begun_at(stub: Stub, asked: pb.GenerateRequest) -> Answer:
    call = stub.Generate(asked)
    begun = await collect(call, num_chunks=2)
    call.cancel()
    return begun


@pytest.mark.parametrize("carry_on", [from_store, from_client])
@pytest.mark.parametrize("lack", LACKS.values(), ids=LACKS)
async def test_an_answer_that_has_begun_is_finished_by_the_replicas_that_can(
    connect, serve, store_on, redis_server, lack, carry_on
):
    able, less = Verifier(**lack.theirs), Verifier(**lack.less)
    first = await serve(await connect([able], [Drafter()]), store_on(redis_server.url))
    second = await serve(await connect([less, able], [Drafter()]), store_on(redis_server.url))
    begun = await begun_at(first, lack.asked)
    whole = begun.then(await collect(carry_on(second, lack.asked, begun)))
    assert len(whole.tokens) == NUM_TOKENS
    if lack.asked.sampling.acceptance_mode == 0:
        assert whole.tokens == (await collect(first.Generate(lack.asked))).tokens
    # One that begins there still has to fit all.
    if lack.asked.stopping.HasField("max_tokens"):
        status, _ = await refusal(second.Generate(lack.asked))
        assert status is grpc.StatusCode.FAILED_PRECONDITION
    capacity = less.info.kv_capacity_tokens
    lengths = [
        call.prefix.base_length + len(call.prefix.token_ids) + len(call.tree.token_ids)
        for call in less.requests
    ]
    assert not lengths or (capacity and max(lengths) <= capacity)


async def test_a_replica_that_joins_is_not_asked_for_what_it_cannot_do(connect, serve):
    able, old = Verifier(), Verifier(features=[])
    await old.start()
    await old.die()
    third = Hold()
    able.faults.extend([passing, passing, third])
    behind = await connect([able], [Drafter()])
    stub = await serve(behind)
    call = stub.Generate(request(sampling=REJECTION, speculation={"strategy": "dsi"}))
    begun = await collect(call, num_chunks=1)
    await third.reached.wait()
    await old.start()
    behind.mesh.verifiers.add(old.address)
    joined = behind.mesh.verifiers.peers[-1]
    await until(lambda: joined.ready, joined)
    third.released.set()
    assert len((await collect(call, begun=begun)).tokens) == NUM_TOKENS
    assert not old.requests
    await old.die()


async def test_where_no_replica_can_finish_it_an_answer_waits_and_may_be_carried_on_elsewhere(
    connect, serve, monkeypatch
):
    monkeypatch.setattr(pool, "NO_PEER_SECONDS", 0.2)
    able = await serve(await connect([Verifier(kv_capacity_tokens=FITS)], [Drafter()]))
    begun = await begun_at(able, request())
    small = Verifier(kv_capacity_tokens=len(PROMPT_IDS) + 1)
    other = await serve(await connect([small], [Drafter()]))
    assert await refusal(from_client(other, request(), begun)) == (
        grpc.StatusCode.UNAVAILABLE,
        "NO_VERIFIER",
    )
    assert not small.requests
