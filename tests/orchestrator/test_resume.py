"""A broken stream is carried on by another orchestrator, with nothing lost or said twice."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import grpc
import grpc.aio
import pytest
from tests.orchestrator.answers import NUM_TOKENS, Answer, alone, collect, refusal, request, said
from tests.orchestrator.peers import Drafter, Hold, Verifier, passing

from specmesh.orchestrator import session_log
from specmesh.serving.errors import error_info
from specmesh.v1 import generation_pb2 as pb
from specmesh.v1 import generation_pb2_grpc

GREEDY = {"temperature": 0}
COUPLED = {"temperature": 0.8, "seed": 11}


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
        await serve(await connect([verifier], [drafter]), store_on(redis_server.url), owner)
        for owner in ("first", "second")
    ]
    return Pair(*stubs, verifier)


def resume(
    stub: generation_pb2_grpc.GenerationServiceStub, answer: Answer, epoch: int | None = None
) -> grpc.aio.UnaryStreamCall[pb.ResumeRequest, pb.ResumeResponse]:
    """Carry ``answer`` on from where it broke."""
    return stub.Resume(
        pb.ResumeRequest(
            session_id=answer.started.session_id,
            num_received_tokens=len(answer.tokens),
            epoch=answer.started.epoch if epoch is None else epoch,
        )
    )


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
    rest = await collect(
        pair.second.Resume(
            pb.ResumeRequest(
                session_id=whole.started.session_id, num_received_tokens=num_received, epoch=1
            )
        )
    )
    assert rest.tokens == whole.tokens[num_received:]
    assert whole.text.endswith(rest.text)
    assert rest.finished.finish_reason == whole.finished.finish_reason
    assert pair.verifier.requests == []  # nothing is computed again


async def test_finished_answer_needs_no_epoch(pair):
    whole = await collect(pair.first.Generate(request()))
    asked = pb.ResumeRequest(session_id=whole.started.session_id)
    assert (await collect(pair.second.Resume(asked))).tokens == whole.tokens


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


async def test_epoch_that_somebody_else_has_used_is_stale(pair):
    begun = await dropped(pair.first, request(), 1)
    await collect(resume(pair.second, begun), num_chunks=1)
    expected = (grpc.StatusCode.FAILED_PRECONDITION, "STALE_EPOCH")
    assert await refusal(resume(pair.first, begun)) == expected


async def test_session_in_good_hands_is_not_given_away_without_its_epoch(pair):
    second = Hold()
    pair.verifier.faults.extend([passing, second])
    call = pair.first.Generate(request())
    begun = await collect(call, num_chunks=1)
    asked = pb.ResumeRequest(session_id=begun.started.session_id)
    expected = (grpc.StatusCode.FAILED_PRECONDITION, "SESSION_HELD")
    assert await refusal(pair.second.Resume(asked)) == expected
    second.released.set()
    answer = await collect(call, begun=begun)  # and its holder was not disturbed
    assert answer.tokens == alone(request().sampling)


async def test_lease_outlives_a_call_that_takes_longer_than_it(
    connect, serve, store_on, redis_server, monkeypatch
):
    monkeypatch.setattr(session_log, "RENEW_SECONDS", 0.02)
    verifier, second = Verifier(), Hold()
    verifier.faults.extend([passing, second])
    behind = await connect([verifier], [Drafter()])
    stub = await serve(behind, store_on(redis_server.url, lease_ms=200))
    call = stub.Generate(request())
    begun = await collect(call, num_chunks=1)
    await asyncio.sleep(0.4)  # twice the lease
    asked = pb.ResumeRequest(session_id=begun.started.session_id)
    expected = (grpc.StatusCode.FAILED_PRECONDITION, "SESSION_HELD")
    assert await refusal(stub.Resume(asked)) == expected
    call.cancel()


async def test_orchestrator_without_drafters_carries_a_speculated_answer_on(
    connect, serve, store_on, redis_server
):
    verifier = Verifier()
    drafting = await connect([verifier], [Drafter()])
    first = await serve(drafting, store_on(redis_server.url))
    second = await serve(await connect([verifier]), store_on(redis_server.url), "second")
    begun = await dropped(first, request(), 2)
    joined = begun.then(await collect(resume(second, begun)))
    assert joined.tokens == alone(request().sampling)


async def test_session_of_a_lost_orchestrator_needs_no_epoch(
    connect, serve, store_on, redis_server
):
    store = store_on(redis_server.url, lease_ms=50)
    stub = await serve(await connect([Verifier()], [Drafter()]), store)
    begun = await dropped(stub, request(), 2)
    asked = pb.ResumeRequest(
        session_id=begun.started.session_id, num_received_tokens=len(begun.tokens)
    )
    rest = None
    async with asyncio.timeout(10):
        while rest is None:
            try:
                rest = await collect(stub.Resume(asked))
            except grpc.aio.AioRpcError as error:
                if error_info(error).reason != "SESSION_HELD":
                    raise
                await asyncio.sleep(0.02)  # until the lease has run out
    assert begun.then(rest).tokens == alone(request().sampling)


async def test_unknown_session_is_not_found(pair):
    expected = (grpc.StatusCode.NOT_FOUND, "SESSION_NOT_FOUND")
    unknown = pb.ResumeRequest(session_id="nobody's", epoch=1)
    assert await refusal(pair.second.Resume(unknown)) == expected
