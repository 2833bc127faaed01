"""A broken stream is carried on by another orchestrator, with nothing lost or said twice."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import grpc
import grpc.aio
import pytest
from redis.asyncio import Redis
from tests.orchestrator.answers import (
    NUM_TOKENS,
    Answer,
    alone,
    collect,
    refusal,
    request,
    resuming,
    said,
)
from tests.orchestrator.model import END_OF_TEXT
from tests.orchestrator.peers import Drafter, Hold, Verifier, passing

from specmesh.orchestrator.answers import answer
from specmesh.serving.errors import error_info, invalid_field
from specmesh.v1 import generation_pb2 as pb
from specmesh.v1 import generation_pb2_grpc

GREEDY = {"temperature": 0}
COUPLED = {"temperature": 0.8, "seed": 11}
REJECTION = {**COUPLED, "acceptance_mode": "ACCEPTANCE_MODE_REJECTION"}
PENALISED = {
    **COUPLED,
    "repetition_penalty": 1.2,
    "frequency_penalty": 1.5,
    "banned_sequences": [{"token_ids": [token]} for token in range(60, 70)],
}


@dataclass(frozen=True, slots=True)
class Pair:
    """Two orchestrators of one mesh and one Redis."""

    first: generation_pb2_grpc.GenerationServiceStub
    second: generation_pb2_grpc.GenerationServiceStub
    verifier: Verifier


@pytest.fixture
async def pair(connect, serve, store_on, redis_server) -> Pair:
    verifier, drafter = Verifier(), Drafter()
    stubs = [
        await serve(await connect([verifier], [drafter]), store_on(redis_server.url))
        for _ in range(2)
    ]
    return Pair(*stubs, verifier)


def resume(
    stub: generation_pb2_grpc.GenerationServiceStub, answer: Answer, **fields: object
) -> grpc.aio.UnaryStreamCall[pb.ResumeRequest, pb.ResumeResponse]:
    """Carry ``answer`` on from where it broke."""
    return stub.Resume(resuming(answer, **fields))


async def dropped(
    stub: generation_pb2_grpc.GenerationServiceStub, asked: pb.GenerateRequest, num_chunks: int
) -> Answer:
    """What a client has of its answer when its stream breaks after some chunks."""
    call = stub.Generate(asked)
    if num_chunks:
        answer = await collect(call, num_chunks)
    else:
        answer = Answer()
        answer.add((await call.read()).event)
    call.cancel()
    return answer


def with_stop_string(sampling: dict[str, float]) -> pb.GenerateRequest:
    """A request whose answer runs into its stop string late."""
    text = said(alone(request(sampling=sampling).sampling))
    starts = range(len(text) * 2 // 3, len(text))
    stop = next(text[at : at + 3] for at in starts if text[at : at + 3].isascii())
    stopping = {"max_tokens": NUM_TOKENS, "stop_strings": [stop]}
    return request(sampling=sampling, stopping=stopping)


REQUESTS = {
    "greedy": request(sampling=GREEDY),
    "coupled": request(sampling=COUPLED),
    "stop string": with_stop_string(COUPLED),
    "penalised": request(sampling=PENALISED),
    "one token a call": request(sampling=COUPLED, speculation={"strategy": "autoregressive"}),
}


@pytest.mark.parametrize("num_chunks", [0, 1, 2, 4, 7, 1000])
@pytest.mark.parametrize("asked", REQUESTS.values(), ids=REQUESTS)
async def test_resumed_answer_equals_the_unbroken_one(pair, asked, num_chunks):
    whole = await collect(pair.first.Generate(asked))
    begun = await dropped(pair.first, asked, num_chunks)
    rest = await collect(resume(pair.second, begun))
    joined = begun.then(rest)
    assert joined.tokens == whole.tokens == alone(asked.sampling)[: len(whole.tokens)]
    assert joined.text == whole.text
    assert joined.finished.finish_reason == whole.finished.finish_reason
    assert joined.finished.stop_string == whole.finished.stop_string
    assert bool(whole.finished.stop_string) == bool(asked.stopping.stop_strings)
    assert joined.finished.resumable
    assert rest.started.epoch == 2
    assert rest.started.session_id == begun.started.session_id


async def test_answer_can_be_resumed_again_and_again(pair):
    asked = request(sampling=COUPLED)
    answer = await dropped(pair.first, asked, 1)
    for epoch, stub in enumerate([pair.second, pair.first, pair.second], start=2):
        call = resume(stub, answer)
        part = await collect(call, num_chunks=1)
        call.cancel()
        assert part.started.epoch == epoch
        answer = answer.then(part)
    answer = answer.then(await collect(resume(pair.first, answer)))
    assert answer.tokens == alone(asked.sampling)
    assert answer.text == said(answer.tokens)


async def test_drawn_seed_outlives_its_orchestrator(pair):
    asked = request(sampling={"temperature": 0.8})
    begun = await dropped(pair.first, asked, 2)
    joined = begun.then(await collect(resume(pair.second, begun)))
    assert joined.started.seed == begun.started.seed
    settled = request(sampling={"temperature": 0.8, "seed": begun.started.seed})
    assert joined.tokens == alone(settled.sampling)


@pytest.mark.parametrize("num_received", [0, 13, NUM_TOKENS])
async def test_finished_answer_is_told_again_from_where_the_client_is(pair, num_received):
    whole = await collect(pair.first.Generate(request()))
    pair.verifier.requests.clear()
    received = pb.Received(token_ids=whole.tokens[:num_received])
    rest = await collect(resume(pair.second, whole, received=received))
    assert rest.tokens == whole.tokens[num_received:]
    assert whole.text.endswith(rest.text)
    assert rest.finished.finish_reason == whole.finished.finish_reason
    assert pair.verifier.requests == []  # nothing is computed again


async def test_orchestrator_that_was_fenced_off_aborts(pair):
    third = Hold()
    pair.verifier.faults.extend([passing, passing, third])
    call = pair.first.Generate(request())
    begun = await collect(call, num_chunks=2)
    await asyncio.wait_for(third.reached.wait(), 10)
    rest = await collect(resume(pair.second, begun))
    third.released.set()
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await collect(call, begun=begun)
    assert raised.value.code() is grpc.StatusCode.ABORTED
    assert error_info(raised.value).reason == "STALE_EPOCH"
    assert begun.then(rest).tokens == alone(request().sampling)


@pytest.mark.parametrize("epoch", [1, 2])
async def test_epoch_that_is_no_higher_than_the_sessions_is_stale(pair, epoch):
    begun = await dropped(pair.first, request(), 1)
    second = await collect(resume(pair.second, begun), num_chunks=1)
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await collect(resume(pair.first, begun, epoch=epoch))
    assert raised.value.code() is grpc.StatusCode.ABORTED
    info = error_info(raised.value)
    assert (info.reason, info.metadata["current_epoch"]) == ("STALE_EPOCH", "2")
    # And its writer was not disturbed.
    rest = await collect(resume(pair.second, begun.then(second), epoch=3))
    assert begun.then(second).then(rest).tokens == alone(request().sampling)


@pytest.mark.parametrize("token", [b"\x00", b"\x00" * 16])
async def test_stranger_who_knows_the_session_and_its_epoch_gets_nothing(pair, token):
    third = Hold()
    pair.verifier.faults.extend([passing, passing, third])
    call = pair.first.Generate(request())
    begun = await collect(call, num_chunks=2)
    await asyncio.wait_for(third.reached.wait(), 10)
    stolen = resume(pair.second, begun, resume_token=token, received=pb.Received())
    assert await refusal(stolen) == (grpc.StatusCode.NOT_FOUND, "SESSION_NOT_FOUND")
    third.released.set()
    answer = await collect(call, begun=begun)
    assert answer.tokens == alone(request().sampling)


async def test_no_two_sessions_have_one_resume_token(pair):
    answers = [await dropped(pair.first, request(), 0) for _ in range(20)]
    tokens = {answer.started.resume_token for answer in answers}
    assert len(tokens) == 20
    assert all(len(token) == 16 for token in tokens)


async def test_resume_token_is_in_no_span_and_no_log_and_not_in_the_store(
    pair, redis_server, caplog
):
    caplog.set_level("DEBUG")
    begun = await dropped(pair.first, request(), 1)
    await collect(resume(pair.second, begun))
    token = begun.started.resume_token
    assert token.hex() not in caplog.text
    assert repr(token) not in caplog.text
    async with Redis.from_url(redis_server.url) as redis:
        keys = await redis.keys(f"*{begun.started.session_id}*:session")
        assert token not in (await redis.hgetall(keys[0])).values()


async def test_model_that_is_served_no_more_is_not_mixed_with_another(
    connect, serve, store_on, redis_server
):
    first, second = [
        await serve(
            await connect([Verifier(weights_digest=digest)], [Drafter()]),
            store_on(redis_server.url),
        )
        for digest in ("ours", "others")
    ]
    begun = await dropped(first, request(), 1)
    expected = (grpc.StatusCode.FAILED_PRECONDITION, "TARGET_REPLACED")
    assert await refusal(resume(second, begun)) == expected
    carried = request(
        received=begun.received, epoch=2, model_fingerprint=begun.started.model_fingerprint
    )
    assert await refusal(second.Generate(carried)) == expected
    rest = await collect(resume(first, begun))  # the failed take-over took nothing
    assert begun.then(rest).tokens == alone(request().sampling)


BAD_RECEIVED = {
    "more than the answer may have": ({"token_ids": [5] * (NUM_TOKENS + 1)}, "token_ids"),
    "no token": ({"token_ids": [10**6]}, "token_ids[0]"),
    "after its end": ({"token_ids": [END_OF_TEXT, 5]}, "token_ids"),
    "no such place": ({"token_ids": [5], "unchecked": [1]}, "unchecked"),
    "places twice": ({"token_ids": [5, 6], "unchecked": [1, 1]}, "unchecked"),
}


@pytest.mark.parametrize(("received", "field"), BAD_RECEIVED.values(), ids=BAD_RECEIVED)
async def test_what_no_client_can_have_is_refused_and_takes_nothing(pair, received, field):
    asked = request(stopping={"max_tokens": NUM_TOKENS})
    begun = await dropped(pair.first, asked, 1)
    for call in (
        resume(pair.second, begun, received=pb.Received(**received)),
        pair.second.Generate(request(received=pb.Received(**received))),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await collect(call)
        assert invalid_field(raised.value).field == f"received.{field}"
    rest = await collect(resume(pair.second, begun))
    assert begun.then(rest).tokens == alone(asked.sampling)


async def test_resume_without_an_epoch_is_refused_by_the_fields_name(pair):
    begun = await dropped(pair.first, request(), 1)
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await collect(resume(pair.second, begun, epoch=0))
    assert invalid_field(raised.value).field == "epoch"


async def test_answer_is_carried_on_from_its_clients_tokens_where_the_store_has_others(pair):
    """Of a sampled answer the store may hold fewer tokens than its client, or others."""
    asked = request(sampling=REJECTION)
    begun = await dropped(pair.first, asked, 2)
    others = pb.Received(token_ids=[7, 8, 9])
    rest = await collect(resume(pair.second, begun, received=others))
    assert rest.chunks[0].first_index == 3
    # It is now the store's answer too, for whoever carries it on next.
    theirs = [*others.token_ids, *rest.tokens]
    told_again = resume(pair.first, rest, received=pb.Received(), epoch=3)
    assert (await collect(told_again)).tokens == theirs


async def test_a_request_that_is_newer_than_its_server_is_refused(pair):
    unknown = b"\xfa\x3f\x01x"  # field 1023, a string
    newer = pb.GenerateRequest.FromString(request().SerializeToString() + unknown)
    expected = (grpc.StatusCode.INVALID_ARGUMENT, "UNKNOWN_FIELD")
    assert await refusal(pair.first.Generate(newer)) == expected
    assert pair.verifier.requests == []
    begun = await dropped(pair.first, request(), 1)
    newer = resuming(begun)
    newer.received.MergeFromString(unknown)
    assert await refusal(pair.second.Resume(newer)) == expected
    # It has not taken the session.
    rest = await collect(resume(pair.second, begun))
    assert begun.then(rest).tokens == alone(request().sampling)


@pytest.mark.parametrize(
    "newer",
    [b"\xf8\x3f\x01", request(speculation={"strategy": "a new one"}).SerializeToString()],
    ids=["field", "strategy"],
)
async def test_a_session_of_a_newer_orchestrator_is_left_to_it(pair, redis_server, newer):
    begun = await dropped(pair.first, request(), 1)
    async with Redis.from_url(redis_server.url) as redis:
        (key,) = await redis.keys(f"*{begun.started.session_id}*:session")
        stored = await redis.hget(key, "request")
        await redis.hset(key, "request", stored + newer)
        await redis.hdel(key, "seal")
        expected = (grpc.StatusCode.UNAVAILABLE, "NEWER_SESSION")
        assert await refusal(resume(pair.second, begun)) == expected
        assert int(await redis.hget(key, "epoch")) == begun.started.epoch


async def test_stored_request_has_all_that_was_settled_but_the_prompt(pair, redis_server):
    begun = await dropped(pair.first, request(num_top_logprobs=2), 1)
    async with Redis.from_url(redis_server.url) as redis:
        (key,) = await redis.keys(f"*{begun.started.session_id}*:session")
        stored = pb.GenerateRequest.FromString(await redis.hget(key, "request"))
    assert stored.WhichOneof("prompt") is None
    assert stored.sampling.seed == begun.started.seed
    assert stored.speculation.strategy == begun.started.strategy
    assert stored.num_top_logprobs == 2


@pytest.mark.parametrize("sampling", [GREEDY, COUPLED])
async def test_answer_goes_on_from_what_its_client_has_without_any_session(pair, sampling):
    asked = request(sampling=sampling)
    begun = await dropped(pair.first, asked, 2)
    asked.epoch, asked.sampling.seed = 2, begun.started.seed
    asked.received.CopyFrom(begun.received)
    rest = await collect(pair.second.Generate(asked))
    assert rest.started.session_id != begun.started.session_id
    assert rest.started.epoch == 2
    joined = begun.then(rest)
    assert joined.tokens == alone(asked.sampling)
    assert joined.text == said(joined.tokens)
    assert rest.finished.stats.num_output_tokens == NUM_TOKENS


async def test_client_hears_heartbeats_while_the_target_thinks(pair, monkeypatch):
    monkeypatch.setattr(answer, "HEARTBEAT_S", 0.02)
    second = Hold()
    pair.verifier.faults.extend([passing, second])
    call = pair.first.Generate(request())
    kinds = []
    async for response in call:
        kinds.append(response.event.WhichOneof("kind"))
        if kinds[-2:] == ["heartbeat"] * 2 and second.reached.is_set():
            second.released.set()
    assert kinds[0] == "started"
    assert kinds[kinds.index("chunk") + 1 :][:2] == ["heartbeat"] * 2
    assert kinds[-1] == "finished"


async def test_orchestrator_without_drafters_carries_a_speculated_answer_on(
    connect, serve, store_on, redis_server
):
    verifier = Verifier()
    drafting = await connect([verifier], [Drafter()])
    first = await serve(drafting, store_on(redis_server.url))
    second = await serve(await connect([verifier]), store_on(redis_server.url))
    begun = await dropped(first, request(), 2)
    joined = begun.then(await collect(resume(second, begun)))
    assert joined.tokens == alone(request().sampling)


async def test_unknown_session_is_not_found(pair):
    expected = (grpc.StatusCode.NOT_FOUND, "SESSION_NOT_FOUND")
    unknown = pb.ResumeRequest(session_id="nobody's", resume_token=b"a guess", epoch=2)
    assert await refusal(pair.second.Resume(unknown)) == expected
