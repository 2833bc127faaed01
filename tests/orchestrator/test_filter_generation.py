"""`filter` from request to answer: what is said of each token, and what happens without it."""

from __future__ import annotations

import asyncio

import grpc
import numpy as np
import pytest
from tests.orchestrator.answers import (
    NUM_TOKENS,
    PROMPT_IDS,
    alone,
    collect,
    refusal,
    request,
    resuming,
    said,
)
from tests.orchestrator.model import drafter_logits, target_logits
from tests.orchestrator.peers import Drafter, Filter, Hold, Verifier, hang, raising

from specmesh.decoding.errors import InvalidField
from specmesh.decoding.noise import Purpose, gumbel
from specmesh.decoding.sampling import Sampling, choose
from specmesh.orchestrator.replicas.calls import confidence_calls
from specmesh.serving.codec.wire import read_sampling
from specmesh.serving.errors import UnavailableStatus
from specmesh.v1 import generation_pb2 as pb

AGREEMENT = 0.5
GREEDY = {"temperature": 0}
COUPLED = {"temperature": 0.8, "seed": 11}


def filtered(sampling: dict[str, float] = GREEDY, **options: object) -> pb.GenerateRequest:
    return request(sampling=sampling, speculation={"strategy": "filter", "filter": options})


def one_at_a_time(sampling: Sampling, threshold: float) -> tuple[list[int], list[int]]:
    """The tokens and the places of those that the target did not check.

    At temperature 0 this is CALID's Algorithm 2. In coupled mode it is the same but for what is
    judged: the drafter's distribution after the noise that it shares with the target.
    """
    tokens, unchecked = list(PROMPT_IDS), []
    for place in range(NUM_TOKENS):
        logits = drafter_logits(tokens, AGREEMENT)
        scores = logits if sampling.temperature == 0 else noisy(logits, sampling, len(tokens))
        if np.exp(scores.max()) / np.exp(scores).sum() > threshold:
            tokens.append(choose(logits, sampling, len(tokens)))
            unchecked.append(place)
        else:
            tokens.append(choose(target_logits(tokens), sampling, len(tokens)))
    return tokens[len(PROMPT_IDS) :], unchecked


def noisy(logits: np.ndarray, sampling: Sampling, position: int) -> np.ndarray:
    ids = np.arange(logits.size)
    return logits / sampling.temperature + gumbel(sampling.seed, position, Purpose.COUPLED, ids)


@pytest.mark.parametrize("sampling", [GREEDY, COUPLED], ids=["greedy", "coupled"])
@pytest.mark.parametrize("threshold", [0.0, 0.5, 0.9, 1.0])
async def test_answer_is_that_of_one_token_at_a_time_and_says_what_was_not_checked(
    connect, serve, sampling, threshold
):
    mesh = await connect([Verifier()], [Drafter(agreement=AGREEMENT)], [Filter(threshold)])
    asked = filtered(sampling)
    answer = await collect((await serve(mesh)).Generate(asked))
    expected = one_at_a_time(read_sampling(asked.sampling), threshold)
    assert (answer.tokens, answer.unchecked) == expected
    assert answer.text == said(answer.tokens)
    assert answer.finished.stats.num_unchecked_tokens == len(expected[1])


async def test_kept_tokens_alone_never_reach_the_target(connect, serve):
    verifier = Verifier()
    stub = await serve(await connect([verifier], [Drafter()], [Filter(0.0)]))
    answer = await collect(stub.Generate(filtered()))
    assert len(answer.tokens) == NUM_TOKENS
    assert verifier.requests == []


async def test_service_hears_who_asks_and_what_counts(connect, serve):
    service = Filter()
    stub = await serve(await connect([Verifier()], [Drafter()], [service]))
    answer = await collect(stub.Generate(filtered(scorer="margin", threshold=0.25)))
    first = service.assessed[0]
    assert first.session_id == answer.started.session_id
    assert (first.options.scorer, first.options.threshold) == ("margin", 0.25)


async def test_mesh_without_a_confidence_service_refuses_the_strategy(connect, serve):
    stub = await serve(await connect([Verifier()], [Drafter()]))
    assert await refusal(stub.Generate(filtered())) == (
        grpc.StatusCode.FAILED_PRECONDITION,
        "NO_CONFIDENCE_SERVICE",
    )


async def test_service_that_errs_leaves_everything_to_the_target(connect, serve):
    service = Filter(0.0)
    [service.always] = raising(UnavailableStatus("DRAINING", "going away"))
    stub = await serve(await connect([Verifier()], [Drafter()], [service]))
    answer = await collect(stub.Generate(filtered()))
    assert (answer.tokens, answer.unchecked) == (alone(request().sampling), [])


@pytest.mark.parametrize("context", ["always", "before_release"])
async def test_service_that_is_slow_leaves_everything_to_the_target(
    connect, serve, monkeypatch, context
):
    monkeypatch.setattr(confidence_calls, "ASSESS_SECONDS", 0.02)
    service = Filter(0.0 if context == "always" else 1.0)
    setattr(service, context, hang)
    stub = await serve(await connect([Verifier()], [Drafter()], [service]))
    asked = filtered()
    asked.stopping.max_tokens = 12
    answer = await collect(stub.Generate(asked))
    assert (answer.tokens, answer.unchecked) == (alone(asked.sampling, 12), [])


@pytest.mark.parametrize("num_responses", [0, 1])
async def test_service_that_ends_too_soon_leaves_everything_to_the_target(
    connect, serve, num_responses
):
    service = Filter()
    service.num_responses = num_responses
    behind = await connect([Verifier()], [Drafter()], [service])
    stub = await serve(behind)
    answer = await asyncio.wait_for(collect(stub.Generate(filtered())), 20)
    assert (answer.tokens, answer.unchecked) == (alone(request().sampling), [])
    assert behind.mesh.confidence.outliers.is_ejected(service.address)


async def test_service_that_dies_amid_an_answer_loses_nothing(connect, serve):
    service, hold = Filter(), Hold()
    service.before_release = hold
    stub = await serve(await connect([Verifier()], [Drafter()], [service]))
    async with asyncio.TaskGroup() as group:
        collected = group.create_task(collect(stub.Generate(filtered())))
        await hold.reached.wait()
        await service.die()
    answer = collected.result()
    assert (answer.tokens, answer.unchecked) == (alone(request().sampling), [])


async def test_options_that_the_service_refuses_end_the_answer(connect, serve):
    service = Filter()
    [service.always] = raising(InvalidField("options.scorer", "no calibration here"))
    stub = await serve(await connect([Verifier()], [Drafter()], [service]))
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await collect(stub.Generate(filtered(scorer="calibrated")))
    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert raised.value.details() == "speculation.filter.scorer: no calibration here"


async def test_filter_of_another_strategy_is_refused(connect, serve):
    stub = await serve(await connect([Verifier()], [Drafter()], [Filter()]))
    asked = request(speculation={"strategy": "dsi", "filter": {"threshold": 0.5}})
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await collect(stub.Generate(asked))
    assert "speculation.filter" in raised.value.details()


async def test_resumed_answer_still_says_what_was_not_checked(
    connect, serve, store_on, redis_server
):
    drafter, verifier, service = Drafter(agreement=AGREEMENT), Verifier(), Filter(0.5)
    first, second = [
        await serve(await connect([verifier], [drafter], [service]), store_on(redis_server.url))
        for _ in range(2)
    ]
    call = first.Generate(filtered())
    begun = await collect(call, num_chunks=2)
    call.cancel()
    # The client has lost all it had: everything is said again, from the store.
    resumed = await collect(second.Resume(resuming(begun, received=pb.Received())))
    assert (resumed.tokens, resumed.unchecked) == one_at_a_time(Sampling(temperature=0), 0.5)
    assert resumed.finished.stats.num_unchecked_tokens == len(resumed.unchecked)


async def test_answer_carried_on_from_its_clients_tokens_knows_which_were_not_checked(
    connect, serve
):
    peers = [Verifier()], [Drafter(agreement=AGREEMENT)], [Filter(0.5)]
    stub = await serve(await connect(*peers))
    call = stub.Generate(filtered())
    begun = await collect(call, num_chunks=4)
    call.cancel()
    asked = filtered()
    asked.received.CopyFrom(begun.received)
    rest = await collect(stub.Generate(asked))
    joined = begun.then(rest)
    assert (joined.tokens, joined.unchecked) == one_at_a_time(Sampling(temperature=0), 0.5)
    assert joined.finished.stats.num_unchecked_tokens == len(joined.unchecked) > 0
