"""Further tokens that may wait come in one response with those after them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import count
from types import SimpleNamespace

import grpc
import pytest
from tests.conformance.calls import answers
from tests.inference.test_verify_service import GREEDY, request, whole
from tests.metrics import Recorded, recorded

from specmesh.decoding.trees.tree import EMPTY
from specmesh.mesh.v1alpha1 import verifier_pb2
from specmesh.serving.metrics import CALL_FORWARD
from specmesh.verifier import verification

__all__ = ["recorded"]

NUM_FURTHER = 20


@pytest.fixture
def model(load):
    model = load()
    model.description = replace(model.description, end_of_text_ids=())
    return model


def asked(collect_ms: int, **fields: object) -> verifier_pb2.VerifyRequest:
    message = request(whole(), EMPTY, {}, GREEDY, **fields)
    message.num_further_tokens = NUM_FURTHER
    message.collect_ms = collect_ms
    return message


async def told(channel, message) -> list[verifier_pb2.VerifyResponse]:
    return [each async for each in answers(channel, message)]


def tokens_of(responses: list[verifier_pb2.VerifyResponse]) -> list[int]:
    return [
        token for each in responses for token in (each.next_token_id, *each.collected_token_ids)
    ]


def sizes_of(responses: list[verifier_pb2.VerifyResponse]) -> list[int]:
    return [1 + len(each.collected_token_ids) for each in responses]


async def test_they_are_those_that_come_one_by_one(model, serve):
    async with serve(model) as channel:
        each = await told(channel, asked(0))
        together = await told(channel, asked(1000))
    assert sizes_of(each) == [1] * (NUM_FURTHER + 1)
    assert sum(sizes_of(together)) == NUM_FURTHER + 1
    assert len(together) < len(each)
    assert tokens_of(together) == tokens_of(each)


async def test_the_first_waits_for_nobody_and_others_no_longer_than_they_may(
    model, serve, monkeypatch
):
    """The clock advances by 10 ms at each look, and a token takes two looks."""
    looks = count()
    clock = SimpleNamespace(perf_counter=lambda: next(looks) / 100, monotonic=lambda: 0.0)
    monkeypatch.setattr(verification, "time", clock)
    async with serve(model) as channel:
        first, *others, _ = sizes_of(await told(channel, asked(45)))
    assert first == 1
    assert others == [3] * len(others)


async def test_they_are_numbered_by_response(model, serve):
    async with serve(model) as channel:
        responses = await told(channel, asked(1000))
    assert [each.number for each in responses] == [*range(1, len(responses) + 1)]
    assert [each.has_more for each in responses] == [True] * (len(responses) - 1) + [False]


async def test_their_cost_counts_all_of_them(model, serve):
    async with serve(model) as channel:
        _, *further = await told(channel, asked(1000))
    assert [each.cost.num_computed_tokens for each in further] == sizes_of(further)


async def test_each_counts_in_the_metrics(model, serve, recorded):
    async with serve(model) as channel:
        for collect_ms in (0, 1000):
            before = _num_forwards(recorded)
            await told(channel, asked(collect_ms))
            assert _num_forwards(recorded) - before == NUM_FURTHER + 1


def _num_forwards(recorded: Recorded) -> int:
    return sum(point.count for point in recorded.points(CALL_FORWARD.name))


async def test_an_end_of_text_ends_them_at_once(model, serve):
    async with serve(model) as channel:
        tokens = tokens_of(await told(channel, asked(0)))
        last = next(each for at, each in enumerate(tokens) if at > 3 and each not in tokens[:at])
        model.description = replace(model.description, end_of_text_ids=(last,))
        responses = await told(channel, asked(1000))
    assert tokens_of(responses) == tokens[: tokens.index(last) + 1]
    assert not responses[-1].has_more


async def test_other_calls_do_not_wait_for_all_of_them(model, serve):
    model.max_batch = 1
    async with serve(model) as channel:
        both = await asyncio.gather(*(told(channel, asked(1000)) for _ in range(2)))
    assert min(sum(sizes_of(each)) for each in both) < NUM_FURTHER


@pytest.mark.parametrize("fields", [{"collect_ms": 1001}, {"collect_ms": 5, "num_top_logprobs": 2}])
async def test_too_long_a_time_and_log_probabilities_are_refused(model, serve, fields):
    message = asked(fields["collect_ms"])
    if "num_top_logprobs" in fields:
        message.num_top_logprobs = fields["num_top_logprobs"]
    async with serve(model) as channel:
        with pytest.raises(grpc.aio.AioRpcError, match="collect_ms") as raised:
            await told(channel, message)
    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
