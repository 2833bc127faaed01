"""GetSession and CancelSession, and whose sessions they are about."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio
import pytest
from redis.asyncio import Redis
from tests.orchestrator.answers import (
    PROMPT_IDS,
    Answer,
    alone,
    collect,
    refusal,
    request,
    resuming,
    said,
)
from tests.orchestrator.model import END_OF_TEXT
from tests.orchestrator.peers import Drafter, Hold, Verifier, hang, passing

from specmesh.orchestrator.answers import answer as answers
from specmesh.serving.caller import identified
from specmesh.serving.errors import error_info, invalid_field
from specmesh.serving.rpc.observed_request import ObservedRequest
from specmesh.v1 import events_pb2, generation_pb2_grpc
from specmesh.v1 import generation_pb2 as pb
from specmesh.v1 import session_pb2 as sessions

COUPLED = {"temperature": 0.8, "seed": 11}
NOT_FOUND = (grpc.StatusCode.NOT_FOUND, "SESSION_NOT_FOUND")
CANCELLED = (grpc.StatusCode.ABORTED, "SESSION_CANCELLED")
ACTIVE, FINISHED, ENDED = (
    sessions.SESSION_STATE_ACTIVE,
    sessions.SESSION_STATE_FINISHED,
    sessions.SESSION_STATE_CANCELLED,
)


@asynccontextmanager
async def by_name(observed: ObservedRequest) -> AsyncIterator[None]:
    """Believes callers who say who they are."""
    metadata = dict(observed.context.invocation_metadata() or ())
    with identified(str(metadata.get("caller", ""))):
        yield


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
        await serve(
            await connect([verifier], [drafter]),
            store_on(redis_server.url, timeout_s=10),
            guard=by_name,
        )
        for _ in range(2)
    ]
    return Pair(*stubs, verifier)


def proof(answer: Answer) -> dict[str, Any]:
    return {
        "session_id": answer.started.session_id,
        "resume_token": answer.started.resume_token,
    }


async def get(stub, answer: Answer, **fields: Any) -> sessions.Session:
    response = await stub.GetSession(sessions.GetSessionRequest(**proof(answer) | fields))
    return response.session


async def cancel(stub, answer: Answer, **fields: Any) -> None:
    await stub.CancelSession(sessions.CancelSessionRequest(**proof(answer) | fields))


async def refused(call: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await call
    return raised.value.code(), error_info(raised.value).reason


async def held_after(pair: Pair, asked: pb.GenerateRequest, num_chunks: int):
    """A stream whose target keeps it waiting after some chunks; release what this gives last."""
    hold = Hold()
    pair.verifier.faults.extend([*[passing] * num_chunks, hold])
    call = pair.first.Generate(asked)
    begun = await collect(call, num_chunks=num_chunks)
    await asyncio.wait_for(hold.reached.wait(), 10)
    return call, begun, hold


async def test_running_session_tells_how_far_it_has_got(pair):
    asked = request(sampling=COUPLED)
    call, begun, hold = await held_after(pair, asked, 2)
    session = await get(pair.second, begun)
    assert session.state == ACTIVE
    assert session.session_id == begun.started.session_id
    assert (session.epoch, session.seed) == (1, 11)
    assert (session.model, session.strategy) == (begun.started.model, begun.started.strategy)
    assert session.num_prompt_tokens == len(PROMPT_IDS)
    assert list(session.token_ids) == begun.tokens
    assert session.text == begun.text
    assert session.finish_reason == events_pb2.FINISH_REASON_UNSPECIFIED
    assert 590 < session.expire_time.ToSeconds() - time.time() <= 601
    hold.released.set()
    whole = await collect(call, begun=begun)
    assert whole.tokens == alone(asked.sampling)  # the look disturbed nothing


async def test_finished_session_is_told_as_its_stream_told_it(pair):
    text = said(alone(request(sampling=COUPLED).sampling))
    stop = next(text[at : at + 3] for at in range(40, len(text)) if text[at : at + 3].isascii())
    for stopping, reason in (
        ({"max_tokens": 7}, events_pb2.FINISH_REASON_LENGTH),
        ({"max_tokens": 40, "stop_strings": [stop]}, events_pb2.FINISH_REASON_STOP),
        ({"max_tokens": 40, "stop_strings": ["beyond all that is said"]}, None),
    ):
        whole = await collect(pair.first.Generate(request(sampling=COUPLED, stopping=stopping)))
        session = await get(pair.second, whole)
        assert session.state == FINISHED
        assert list(session.token_ids) == whole.tokens
        assert session.text == whole.text
        assert session.finish_reason == whole.finished.finish_reason
        assert reason in {None, session.finish_reason}
        assert 50 < session.expire_time.ToSeconds() - time.time() <= 61


async def test_end_of_text_is_told(pair):
    received = pb.Received(token_ids=[5, END_OF_TEXT])
    whole = await collect(pair.first.Generate(request(received=received)))
    session = await get(pair.second, whole)
    assert session.finish_reason == events_pb2.FINISH_REASON_END_OF_TEXT
    assert list(session.token_ids) == [5, END_OF_TEXT]


async def test_session_that_expired_is_not_found(pair, redis_server):
    whole = await collect(pair.first.Generate(request()))
    async with Redis.from_url(redis_server.url) as redis:
        for key in await redis.keys(f"*{whole.started.session_id}*"):
            await redis.pexpire(key, 1)
    await asyncio.sleep(0.01)
    assert await refused(get(pair.second, whole)) == NOT_FOUND
    assert await refused(cancel(pair.second, whole)) == NOT_FOUND


async def test_cancelling_ends_the_stream_and_all_work_for_it(pair):
    call, begun, hold = await held_after(pair, request(sampling=COUPLED), 2)
    await cancel(pair.second, begun)
    hold.released.set()
    assert await refusal(call) == CANCELLED
    session = await get(pair.second, begun)
    assert session.state == ENDED
    assert list(session.token_ids) == begun.tokens
    assert session.finish_reason == events_pb2.FINISH_REASON_UNSPECIFIED
    assert 50 < session.expire_time.ToSeconds() - time.time() <= 61
    num_asked = len(pair.verifier.requests)
    assert await refusal(pair.first.Resume(resuming(begun))) == CANCELLED
    assert len(pair.verifier.requests) == num_asked


async def test_stream_that_has_nothing_to_say_hears_of_its_cancelling(pair, monkeypatch):
    """A target that hangs must not keep a cancelled answer at work."""
    monkeypatch.setattr(answers, "HEARTBEAT_S", 0.02)
    call, begun, hold = await held_after(pair, request(), 1)
    pair.verifier.always = hang
    await cancel(pair.second, begun)
    assert await asyncio.wait_for(refusal(call), 10) == CANCELLED
    hold.released.set()


async def test_cancelling_twice_changes_nothing(pair):
    call, begun, hold = await held_after(pair, request(), 1)
    await cancel(pair.first, begun)
    await cancel(pair.second, begun)
    hold.released.set()
    assert await refusal(call) == CANCELLED
    assert (await get(pair.first, begun)).state == ENDED


async def test_cancelling_a_finished_session_changes_nothing(pair):
    whole = await collect(pair.first.Generate(request()))
    await cancel(pair.second, whole)
    assert (await get(pair.first, whole)).state == FINISHED
    rest = await collect(pair.second.Resume(resuming(whole, received=pb.Received())))
    assert rest.tokens == whole.tokens


async def test_request_under_the_id_of_a_cancelled_one_is_cancelled(pair, request_id):
    asked = request(request_id=request_id)
    call, begun, hold = await held_after(pair, asked, 1)
    await cancel(pair.second, begun)
    hold.released.set()
    assert await refusal(call) == CANCELLED
    assert await refusal(pair.second.Generate(asked)) == CANCELLED


@pytest.fixture
def request_id(request) -> str:
    return request.node.nodeid[-128:]


ALICE, MALLORY = [("caller", "alice")], [("caller", "mallory")]


@pytest.mark.parametrize("stranger", [MALLORY, []])
async def test_session_is_its_owners_alone_whatever_others_know(pair, stranger):
    call = pair.first.Generate(request(sampling=COUPLED), metadata=ALICE)
    begun = await collect(call, num_chunks=2)
    call.cancel()
    got, cancelled = (
        sessions.GetSessionRequest(**proof(begun)),
        sessions.CancelSessionRequest(**proof(begun)),
    )
    stub = pair.second
    assert await refused(stub.GetSession(got, metadata=stranger)) == NOT_FOUND
    assert await refused(stub.CancelSession(cancelled, metadata=stranger)) == NOT_FOUND
    assert await refusal(stub.Resume(resuming(begun), metadata=stranger)) == NOT_FOUND
    assert (await stub.GetSession(got, metadata=ALICE)).session.state == ACTIVE
    rest = await collect(stub.Resume(resuming(begun), metadata=ALICE))
    assert begun.then(rest).tokens == alone(request(sampling=COUPLED).sampling)


async def test_identities_share_no_request_id(pair, request_id):
    asked = request(request_id=request_id, sampling={"temperature": 0.8})
    ours = await collect(pair.first.Generate(asked, metadata=ALICE))
    theirs = await collect(pair.second.Generate(asked, metadata=MALLORY))
    assert theirs.started.session_id != ours.started.session_id
    assert theirs.started.seed != ours.started.seed
    assert theirs.started.epoch == 1


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"session_id": "s" * 65}, "session_id"),
        ({"resume_token": b"s" * 65}, "resume_token"),
    ],
)
async def test_what_can_be_nobodys_session_is_refused(pair, fields, field):
    whole = await collect(pair.first.Generate(request()))
    for call in (
        get(pair.first, whole, **fields),
        cancel(pair.first, whole, **fields),
        pair.first.Resume(resuming(whole, **fields)).read(),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await call
        assert invalid_field(raised.value).field == field


@pytest.mark.parametrize("epoch", [0, 2**31, 2**32 - 1])
async def test_epoch_out_of_range_is_refused(pair, epoch):
    whole = await collect(pair.first.Generate(request()))
    for call in (
        pair.first.Generate(request(epoch=epoch)),
        pair.first.Resume(resuming(whole, epoch=epoch)),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await call.read()
        assert invalid_field(raised.value).field == "epoch"


async def test_without_a_store_there_are_no_sessions(connect, serve):
    stub = await serve(await connect([Verifier()]))
    nobodys = Answer(events_pb2.GenerationStarted(session_id="a", resume_token=b"b"))
    expected = (grpc.StatusCode.UNAVAILABLE, "NO_STORE")
    assert await refused(get(stub, nobodys)) == expected
    assert await refused(cancel(stub, nobodys)) == expected


async def test_while_the_store_is_away_sessions_are_unavailable(
    connect, serve, store_on, start_redis
):
    redis = start_redis()
    stub = await serve(await connect([Verifier()], [Drafter()]), store_on(redis.url))
    whole = await collect(stub.Generate(request()))
    redis.kill()
    expected = (grpc.StatusCode.UNAVAILABLE, "STORE_UNAVAILABLE")
    assert await refused(get(stub, whole)) == expected
    assert await refused(cancel(stub, whole)) == expected


async def test_session_of_a_replaced_target_can_be_cancelled_and_not_told(
    connect, serve, store_on, redis_server
):
    first, second = [
        await serve(
            await connect([Verifier(weights_digest=digest)], [Drafter()]),
            store_on(redis_server.url, timeout_s=10),
        )
        for digest in ("ours", "others")
    ]
    begun = await collect(first.Generate(request()), num_chunks=1)
    expected = (grpc.StatusCode.FAILED_PRECONDITION, "TARGET_REPLACED")
    assert await refused(get(second, begun)) == expected
    await cancel(second, begun)
