"""A replica decodes on after a verdict for as long as that is at nobody's cost."""

from __future__ import annotations

import asyncio
import weakref
from dataclasses import replace

import pytest
from tests.conformance.calls import answers
from tests.inference.test_verify_service import GREEDY, PREFIX, by_base, request, whole

from specmesh.decoding.prefix import BLOCK_TOKENS
from specmesh.decoding.trees.tree import EMPTY
from specmesh.mesh.v1alpha1 import verifier_pb2, verifier_pb2_grpc

NUM_FURTHER = 20


def asked(prefix=None) -> verifier_pb2.VerifyRequest:
    message = request(prefix or whole(), EMPTY, {}, GREEDY)
    message.num_further_tokens = NUM_FURTHER
    return message


async def all_answers(channel, message) -> list[verifier_pb2.VerifyResponse]:
    return [each async for each in answers(channel, message)]


async def test_each_has_its_own_cost(load, serve):
    model = load()
    model.description = replace(model.description, end_of_text_ids=())
    async with serve(model) as channel:
        told = await all_answers(channel, asked())
    assert len(told) == NUM_FURTHER + 1
    for each in told[1:]:
        assert (each.cost.num_cached_tokens, each.cost.num_computed_tokens) == (0, 1)
        assert (each.cost.num_batch_calls, each.cost.num_batch_tokens) == (1, 1)
        assert each.cost.forward_ms > 0
        assert each.cost.queue_ms == 0


async def test_they_are_numbered(load, serve):
    model = load()
    model.description = replace(model.description, end_of_text_ids=())
    async with serve(model) as channel:
        told = await all_answers(channel, asked())
        (only,) = await all_answers(channel, _one(whole()))
    assert [each.number for each in told] == [*range(1, NUM_FURTHER + 2)]
    assert only.number == 0


async def test_earlier_logits_are_not_kept_meanwhile(load, serve):
    model = load()
    forward = model.forward
    logits: list[weakref.ref] = []
    num_kept: list[int] = []

    def watched(requests):
        num_kept.append(sum(each() is not None for each in logits))
        results = forward(requests)
        logits.extend(weakref.ref(each) for each in results if each is not None)
        return results

    model.forward = watched
    async with serve(model) as channel:
        await all_answers(channel, asked())
    assert len(logits) > NUM_FURTHER
    assert not any(num_kept)


async def test_they_stay_cached(load, serve):
    async with serve(load()) as channel:
        told = await all_answers(channel, asked())
        text = [*PREFIX, *(each.next_token_id for each in told)]
        (again,) = [each async for each in answers(channel, _one(by_base(text)))]
    assert again.cost.num_cached_tokens == (len(text) - 1) // BLOCK_TOKENS * BLOCK_TOKENS


def _one(prefix) -> verifier_pb2.VerifyRequest:
    return request(prefix, EMPTY, {}, GREEDY)


async def test_an_end_of_text_ends_them(load, serve):
    model = load()
    every_token = tuple(range(model.description.vocab_size))
    model.description = replace(model.description, end_of_text_ids=every_token)
    async with serve(model) as channel:
        (only,) = await all_answers(channel, asked())
    assert not only.has_more


async def test_other_calls_do_not_wait_for_all_of_them(load, serve):
    model = load()
    model.max_batch = 1
    async with serve(model) as channel:
        told = await asyncio.gather(*(all_answers(channel, asked()) for _ in range(2)))
    assert min(map(len, told)) < NUM_FURTHER


async def test_a_cache_without_room_for_them_still_has_room_for_the_verdict(load, serve):
    num_blocks = -(-(len(PREFIX) + 1) // BLOCK_TOKENS)
    async with serve(load(cache_tokens=num_blocks * BLOCK_TOKENS)) as channel:
        (only,) = await all_answers(channel, asked())
    assert not only.has_more
    assert only.number == 1


async def test_a_caller_that_has_left_ends_them(load, serve):
    model = load()
    forward, num_passes = model.forward, 0

    def counted(requests):
        nonlocal num_passes
        num_passes += 1
        return forward(requests)

    model.forward = counted
    message = asked()
    message.num_further_tokens = 255
    async with serve(model) as channel:
        call = verifier_pb2_grpc.VerifierServiceStub(channel).VerifyEach(timeout=20)
        await call.write(verifier_pb2.VerifyEachRequest(request=message))
        await call.read()
        call.cancel()
        alone = verifier_pb2_grpc.VerifierServiceStub(channel)
        async with asyncio.timeout(20):
            while (await alone.Verify(_one(whole()))).cost.num_batch_calls > 1:
                pass
    assert num_passes < 200


@pytest.mark.parametrize("prefix", [whole(), by_base()])
async def test_first_of_them_is_the_verdict(load, serve, prefix):
    async with serve(load()) as channel:
        await all_answers(channel, asked())
        alone = await verifier_pb2_grpc.VerifierServiceStub(channel).Verify(_one(prefix))
        told = await all_answers(channel, asked(prefix))
    assert told[0].next_token_id == alone.next_token_id
