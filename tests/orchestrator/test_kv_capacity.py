"""What no replica could finish is refused at the start; what begins never outgrows them."""

from __future__ import annotations

import grpc
import pytest
from tests.orchestrator.answers import NUM_TOKENS, PROMPT_IDS, collect, refusal, request
from tests.orchestrator.peers import Drafter, Filter, Verifier

from specmesh.orchestrator.strategies import STRATEGIES

FITS = len(PROMPT_IDS) + NUM_TOKENS
AT_MOST = {"max_tokens": NUM_TOKENS}
NEVER = (grpc.StatusCode.FAILED_PRECONDITION, "KV_CACHE_TOO_SMALL")


async def test_of_unequal_replicas_the_least_counts(connect, serve):
    stub = await serve(
        await connect(
            [Verifier(kv_capacity_tokens=10_000), Verifier(kv_capacity_tokens=FITS - 1)],
            [Drafter()],
        )
    )
    assert await refusal(stub.Generate(request())) == NEVER
    answer = await collect(stub.Generate(request(stopping={})))
    assert len(answer.tokens) == NUM_TOKENS - 1


async def test_replicas_without_a_limit_set_none(connect, serve):
    stub = await serve(await connect([Verifier(), Verifier(kv_capacity_tokens=FITS)], [Drafter()]))
    assert len((await collect(stub.Generate(request()))).tokens) == NUM_TOKENS


async def test_a_replica_that_is_away_may_come_back(connect, serve):
    small = Verifier(kv_capacity_tokens=FITS - 1)
    stub = await serve(await connect([Verifier(), small], [Drafter()]))
    await small.die()
    assert await refusal(stub.Generate(request())) == NEVER


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_no_verification_is_longer_than_the_answer_can_become(connect, serve, strategy):
    verifiers = [Verifier(kv_capacity_tokens=FITS), Verifier(kv_capacity_tokens=FITS)]
    stub = await serve(await connect(verifiers, [Drafter(agreement=0.95)], [Filter()]))
    for options in ({}, {"lookahead": 16}):
        asked = request(stopping=AT_MOST, speculation={"strategy": strategy} | options)
        assert len((await collect(stub.Generate(asked))).tokens) == NUM_TOKENS
    lengths = [
        call.prefix.base_length + len(call.prefix.token_ids) + len(call.tree.token_ids)
        for verifier in verifiers
        for call in verifier.requests
    ]
    assert max(lengths) <= FITS
