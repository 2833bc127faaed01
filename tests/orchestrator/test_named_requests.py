"""A request that is sent again under its id carries its answer on, on any orchestrator."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import grpc
import grpc.aio
import pytest
from redis.asyncio import Redis
from tests.orchestrator.answers import (
    NUM_TOKENS,
    PROMPT_IDS,
    Answer,
    alone,
    collect,
    refusal,
    request,
    resuming,
    said,
)
from tests.orchestrator.peers import Drafter, Hold, Verifier, passing
from tests.ports import free_port
from tests.serving.conftest import RedisServer

from specmesh.orchestrator.answers import session_log
from specmesh.orchestrator.requests import named_requests
from specmesh.orchestrator.requests.named_requests import named
from specmesh.serving.errors import error_info, invalid_field
from specmesh.serving.store import patience
from specmesh.v1 import generation_pb2 as pb
from specmesh.v1 import generation_pb2_grpc

DRAWN = {"temperature": 0.8}
REJECTION = {**DRAWN, "acceptance_mode": "ACCEPTANCE_MODE_REJECTION"}
AMBIGUOUS = [("ab", ""), ("b", "a")]
REUSED = (grpc.StatusCode.ALREADY_EXISTS, "REQUEST_ID_REUSED")


@dataclass(frozen=True, slots=True)
class Pair:
    """Two orchestrators of one mesh and one Redis."""

    first: generation_pb2_grpc.GenerationServiceStub
    second: generation_pb2_grpc.GenerationServiceStub
    verifier: Verifier


@pytest.fixture
async def pair(connect, serve, store_on, redis_server, monkeypatch) -> Pair:
    # A store that lags on a busy machine would let tokens go unstored, and a rival start without.
    monkeypatch.setattr(patience, "SHORTEST_S", 10.0)
    monkeypatch.setattr(patience, "LONGEST_S", 10.0)
    verifier, drafter = Verifier(), Drafter()
    stubs = [
        await serve(await connect([verifier], [drafter]), store_on(redis_server.url, timeout_s=10))
        for _ in range(2)
    ]
    return Pair(*stubs, verifier)


@pytest.fixture
def request_id(request) -> str:
    """One that no other test has used on the Redis that they share."""
    return request.node.nodeid[-128:]


async def begun(stub, asked: pb.GenerateRequest, num_chunks: int) -> Answer:
    """What a client has of an answer when it loses its stream."""
    call = stub.Generate(asked)
    answer = Answer()
    while not answer.started.session_id or len(answer.chunks) < num_chunks:
        answer.add((await call.read()).event)
    call.cancel()
    return answer


@pytest.mark.parametrize("sampling", [{"temperature": 0}, DRAWN, REJECTION])
@pytest.mark.parametrize("num_chunks", [0, 1, 3, 1000])
async def test_start_that_is_repeated_gives_the_same_answer_from_its_first_token(
    pair, request_id, sampling, num_chunks
):
    asked = request(request_id=request_id, sampling=sampling, stopping={"max_tokens": NUM_TOKENS})
    if num_chunks == 1000:
        first = await collect(pair.first.Generate(asked))
    else:
        first = await begun(pair.first, asked, num_chunks)
    again = await collect(pair.second.Generate(asked))
    assert again.tokens[: len(first.tokens)] == first.tokens
    assert again.started.seed == first.started.seed
    assert again.started.session_id == first.started.session_id
    assert again.started.resume_token == first.started.resume_token
    assert (first.started.epoch, again.started.epoch) == (1, 2)
    assert len(again.tokens) == NUM_TOKENS
    if sampling is not REJECTION:
        seeded = request(sampling={**sampling, "seed": first.started.seed})
        assert again.tokens == alone(seeded.sampling)
    assert again.text == said(again.tokens)


async def test_start_whose_answer_was_never_heard_is_repeated(pair, request_id):
    hold = Hold()
    pair.verifier.faults.append(hold)
    asked = request(request_id=request_id, sampling=DRAWN)
    lost = pair.first.Generate(asked)
    await asyncio.wait_for(hold.reached.wait(), 10)
    lost.cancel()
    hold.released.set()
    again = await collect(pair.second.Generate(asked))
    assert again.started.epoch == 2
    seeded = request(sampling={**DRAWN, "seed": again.started.seed})
    assert again.tokens == alone(seeded.sampling)


async def test_finished_answer_is_told_again_and_nothing_computed(pair, request_id):
    asked = request(request_id=request_id, sampling=DRAWN)
    whole = await collect(pair.first.Generate(asked))
    pair.verifier.requests.clear()
    again = await collect(pair.second.Generate(asked))
    assert (again.tokens, again.text) == (whole.tokens, whole.text)
    assert pair.verifier.requests == []


async def test_repeated_start_goes_on_after_what_the_client_has_received(pair, request_id):
    """As the SDK asks: with the seed and the strategy that it was told."""
    asked = request(request_id=request_id, sampling=DRAWN)
    first = await begun(pair.first, asked, 2)
    carried = pb.GenerateRequest()
    carried.CopyFrom(asked)
    carried.sampling.seed = first.started.seed
    carried.speculation.strategy = first.started.strategy
    carried.model_fingerprint = first.started.model_fingerprint
    carried.epoch = 2
    carried.received.CopyFrom(first.received)
    rest = await collect(pair.second.Generate(carried))
    joined = first.then(rest)
    seeded = request(sampling={**DRAWN, "seed": first.started.seed})
    assert joined.tokens == alone(seeded.sampling)
    assert rest.started.epoch == 2


async def test_repeated_start_takes_the_answer_from_the_stream_that_had_it(pair, request_id):
    third = Hold()
    pair.verifier.faults.extend([passing, passing, third])
    asked = request(request_id=request_id)
    call = pair.first.Generate(asked)
    first = await collect(call, num_chunks=2)
    await asyncio.wait_for(third.reached.wait(), 10)
    again = await collect(pair.second.Generate(asked))
    third.released.set()
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await collect(call, begun=first)
    assert raised.value.code() is grpc.StatusCode.ABORTED
    assert error_info(raised.value).reason == "STALE_EPOCH"
    assert again.tokens == alone(asked.sampling)


async def test_of_many_starts_at_once_one_goes_on_and_all_tell_one_text(pair, request_id):
    asked = request(request_id=request_id, sampling=REJECTION)
    calls = [stub.Generate(asked) for _ in range(5) for stub in (pair.first, pair.second)]

    answers = [Answer() for _ in calls]
    ends = await asyncio.gather(
        *(collect(call, begun=answer) for call, answer in zip(calls, answers, strict=True)),
        return_exceptions=True,
    )
    fenced_off = [end for end in ends if isinstance(end, BaseException)]
    assert {error_info(end).reason for end in fenced_off} <= {"STALE_EPOCH"}
    finished = [answer for answer in answers if answer.finished is not None]
    assert finished
    text = finished[-1]
    assert all(answer.tokens == text.tokens[: len(answer.tokens)] for answer in answers)
    epochs = [answer.started.epoch for answer in answers if answer.started.epoch]
    assert len(set(epochs)) == len(epochs)


@pytest.mark.parametrize(
    "changes",
    [
        *({"text": "another prompt"}, {"tokens": {"ids": PROMPT_IDS}}),
        *({"sampling": {"temperature": 0.5}}, {"sampling": {**DRAWN, "seed": 1}}),
        *({"stopping": {"max_tokens": 3}}, {"speculation": {"strategy": "filter"}}),
    ],
)
async def test_another_request_under_the_same_id_is_refused(
    connect, serve, store_on, redis_server, request_id, changes
):
    asked = request(request_id=request_id, sampling=DRAWN)
    behind = await connect([Verifier()], [Drafter()])
    stub = await serve(behind, store_on(redis_server.url, timeout_s=10))
    whole = await collect(stub.Generate(asked))
    fields = {"request_id": request_id, "sampling": DRAWN, **changes}
    if "tokens" in changes:
        other = pb.GenerateRequest(stopping={"max_tokens": NUM_TOKENS}, **fields)
    else:
        other = request(**fields)
    if "speculation" not in changes:  # there's no confidence service here
        assert await refusal(stub.Generate(other)) == REUSED
    assert named(other, "").claim(other).session_id == whole.started.session_id
    assert named(other, "").claim(other).resume_token != whole.started.resume_token
    again = await collect(stub.Generate(asked))
    assert again.tokens == whole.tokens


@pytest.mark.parametrize("strategy", ["autoregressive", "dsi", "branch-prediction"])
async def test_strategy_that_leaves_the_text_alone_makes_no_other_request(
    pair, request_id, strategy
):
    whole = await collect(pair.first.Generate(request(request_id=request_id)))
    other = request(request_id=request_id, speculation={"strategy": strategy})
    again = await collect(pair.second.Generate(other))
    assert again.tokens == whole.tokens
    assert again.started.strategy == whole.started.strategy


@pytest.mark.parametrize(("epoch", "expected"), [(2, 2), (7, 7)])
async def test_epoch_that_is_named_counts(pair, request_id, epoch, expected):
    await begun(pair.first, request(request_id=request_id), 1)
    again = await collect(pair.second.Generate(request(request_id=request_id, epoch=epoch)))
    assert again.started.epoch == expected
    stale = pair.first.Generate(request(request_id=request_id, epoch=expected))
    assert await refusal(stale) == (grpc.StatusCode.ABORTED, "STALE_EPOCH")


async def test_answer_begun_under_an_id_can_be_resumed(pair, request_id):
    asked = request(request_id=request_id, sampling=DRAWN)
    first = await begun(pair.first, asked, 2)
    joined = first.then(await collect(pair.second.Resume(resuming(first))))
    seeded = request(sampling={**DRAWN, "seed": first.started.seed})
    assert joined.tokens == alone(seeded.sampling)


async def test_answer_that_redis_lost_begins_anew_with_the_same_seed(
    pair, request_id, redis_server
):
    asked = request(request_id=request_id, sampling=DRAWN)
    first = await begun(pair.first, asked, 2)
    async with Redis.from_url(redis_server.url) as redis:
        await redis.delete(*await redis.keys(f"*{first.started.session_id}*"))
    again = await collect(pair.second.Generate(asked))
    assert again.tokens[: len(first.tokens)] == first.tokens
    assert again.started.seed == first.started.seed


async def test_without_a_store_an_id_fixes_the_seed_alone(connect, serve):
    stub = await serve(await connect([Verifier()], [Drafter()]))
    asked = request(request_id="r", sampling=DRAWN)
    first, again = [await collect(stub.Generate(asked)) for _ in range(2)]
    assert first.started.session_id != again.started.session_id
    assert first.started.resume_token != again.started.resume_token
    assert not first.started.resumable
    assert first.tokens == again.tokens


async def test_while_the_store_is_away_a_request_with_an_id_is_answered(
    connect, serve, store_on, start_redis
):
    redis = start_redis()
    stub = await serve(await connect([Verifier()], [Drafter()]), store_on(redis.url))
    redis.kill()
    answer = await collect(stub.Generate(request(request_id="r")))
    assert answer.tokens == alone(request().sampling)
    assert not answer.started.resumable
    redis.start_empty()
    again = await collect(stub.Generate(request(request_id="r")))
    assert again.started.session_id == answer.started.session_id
    assert again.started.epoch == 1


async def test_finished_answer_is_told_again_although_the_last_command_failed(
    connect, serve, store_on, start_redis, monkeypatch
):
    monkeypatch.setattr(session_log, "SHORTEST_S", 10.0)  # a busy machine may take longer
    verifier, store = Verifier(), store_on(start_redis().url, timeout_s=10)
    stub = await serve(await connect([verifier], [Drafter()]), store)
    asked = request(request_id="r", sampling=REJECTION)
    whole = await collect(stub.Generate(asked))
    verifier.requests.clear()
    store.patience.failed()
    again = await collect(stub.Generate(asked))
    assert (again.started.epoch, again.tokens) == (2, whole.tokens)
    assert verifier.requests == []


async def refuse_writes(redis: RedisServer, why: str) -> None:
    async with Redis.from_url(redis.url) as admin:
        if why == "full":
            await admin.config_set("maxmemory", 1)
        else:
            await admin.execute_command("REPLICAOF", "127.0.0.1", str(free_port()))


@pytest.mark.parametrize("why", ["full", "a replica"])
async def test_finished_answer_is_told_again_by_a_store_that_refuses_writes(
    connect, serve, store_on, start_redis, why
):
    redis, verifier = start_redis(), Verifier()
    stub = await serve(await connect([verifier], [Drafter()]), store_on(redis.url, timeout_s=10))
    asked = request(request_id="r", sampling=REJECTION)
    whole = await collect(stub.Generate(asked))
    verifier.requests.clear()
    await refuse_writes(redis, why)
    again = await collect(stub.Generate(asked))
    assert again.tokens == whole.tokens
    assert again.started.session_id == whole.started.session_id
    assert again.finished.resumable
    assert (whole.started.epoch, again.started.epoch) == (1, 2)
    assert verifier.requests == []
    rest = await collect(stub.Resume(resuming(again, received=whole.received)))
    assert (rest.tokens, rest.started.epoch) == ([], 3)
    former = resuming(whole, received=whole.received)
    former.epoch = 1
    assert await refusal(stub.Resume(former)) == (grpc.StatusCode.ABORTED, "STALE_EPOCH")


async def test_running_answer_that_cannot_be_taken_leaves_its_session_to_who_has_it(
    connect, serve, store_on, start_redis
):
    redis, verifier, hold = start_redis(), Verifier(), Hold()
    stubs = [
        await serve(await connect([verifier], [Drafter()]), store_on(redis.url, timeout_s=10))
        for _ in range(2)
    ]
    verifier.faults.extend([passing, hold])
    asked = request(request_id="r")
    call = stubs[0].Generate(asked)
    first = await collect(call, num_chunks=1)
    await asyncio.wait_for(hold.reached.wait(), 10)
    await refuse_writes(redis, "full")
    again = await collect(stubs[1].Generate(asked))
    assert again.started.session_id == first.started.session_id
    assert not again.finished.resumable
    async with Redis.from_url(redis.url) as admin:
        await admin.config_set("maxmemory", 0)
        assert len(await admin.keys("*:session")) == 1
    hold.released.set()
    first = await collect(call, begun=first)
    assert first.finished.resumable
    assert first.tokens == again.tokens == alone(request().sampling)


def test_identities_have_requests_of_their_own_under_one_id():
    asked = request(request_id="r", sampling=DRAWN)
    ours, theirs, again = (named(asked, owner) for owner in ("us", "them", "us"))
    assert ours == again
    assert ours.claim(asked).session_id != theirs.claim(asked).session_id
    assert ours.claim(asked).resume_token != theirs.claim(asked).resume_token
    assert ours.seed != theirs.seed
    # Nor does it help to have a name that ends where another's id begins.
    sessions = {named(request(request_id=i), o).claim(asked).session_id for i, o in AMBIGUOUS}
    assert len(sessions) == 2
    assert ours.seed < 2**53


def test_drawn_seeds_are_spread_evenly():
    seeds = [named(request(request_id=str(n)), "").seed / 2**53 for n in range(2000)]
    assert abs(sum(seeds) / len(seeds) - 0.5) < 0.03
    assert min(seeds) < 0.01
    assert max(seeds) > 0.99


async def test_text_that_is_refused_is_not_read_for_its_id(pair, request_id, monkeypatch):
    monkeypatch.setattr(named_requests, "_meaning", lambda *_: pytest.fail("it was read"))
    asked = request(request_id=request_id, text="x" * 1_000_000)
    refused = grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD"
    assert await refusal(pair.first.Generate(asked)) == refused


async def test_id_of_too_many_characters_is_refused(pair):
    accepted = await collect(pair.first.Generate(request(request_id="ü" * 128)))
    assert accepted.finished is not None
    for call in (
        pair.first.Generate(request(request_id="x" * 129)).read(),
        pair.first.Complete(pb.CompleteRequest(request=request(request_id="x" * 129))),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await call
        assert invalid_field(raised.value).field.removeprefix("request.") == "request_id"
