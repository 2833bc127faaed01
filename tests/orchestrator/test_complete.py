"""Complete gives whole what Generate streams."""

from __future__ import annotations

import asyncio

import grpc
import grpc.aio
import pytest
from tests.metrics import Recorded, recorded
from tests.orchestrator.answers import NUM_TOKENS, alone, collect, request, said
from tests.orchestrator.peers import Drafter, Hold, Verifier, hang

from specmesh.orchestrator.answers import answer as answers
from specmesh.serving.errors import error_info, invalid_field
from specmesh.v1 import generation_pb2 as pb
from specmesh.v1 import generation_pb2_grpc

__all__ = ["recorded"]

COUPLED = {"temperature": 0.8, "seed": 11}
DURATION = "gen_ai.server.request.duration"


@pytest.fixture
def verifier() -> Verifier:
    return Verifier()


@pytest.fixture
async def stub(connect, serve, store_on, redis_server, verifier):
    behind = await connect([verifier], [Drafter()])
    return await serve(behind, store_on(redis_server.url, timeout_s=10))


def completing(
    stub: generation_pb2_grpc.GenerationServiceStub, timeout: float | None = None, **fields: object
) -> grpc.aio.UnaryUnaryCall[pb.CompleteRequest, pb.CompleteResponse]:
    return stub.Complete(pb.CompleteRequest(request=request(**fields)), timeout=timeout)


@pytest.mark.parametrize("max_tokens", [1, 7, NUM_TOKENS])
@pytest.mark.parametrize("sampling", [{"temperature": 0}, COUPLED])
async def test_whole_answer_is_the_one_that_is_streamed(stub, sampling, max_tokens):
    fields = {"sampling": sampling, "stopping": {"max_tokens": max_tokens}}
    streamed = await collect(stub.Generate(request(**fields)))
    whole = await completing(stub, **fields)
    assert list(whole.chunk.token_ids) == streamed.tokens
    assert whole.chunk.text == streamed.text == said(streamed.tokens)
    assert whole.chunk.first_index == 0
    assert whole.chunk.resumable
    assert whole.finished.finish_reason == streamed.finished.finish_reason
    assert whole.finished.text == ""
    assert whole.finished.stats.num_output_tokens == max_tokens
    assert not whole.chunk.HasField("stats")
    assert whole.started.resumable


@pytest.mark.parametrize("num_received", [1, 13, NUM_TOKENS])
async def test_whole_answer_goes_on_after_what_the_client_has(stub, num_received):
    tokens = alone(request(sampling=COUPLED).sampling)
    received = pb.Received(token_ids=tokens[:num_received])
    whole = await completing(stub, sampling=COUPLED, received=received)
    assert whole.chunk.first_index == num_received
    assert list(whole.chunk.token_ids) == tokens[num_received:]
    assert said(tokens).endswith(whole.chunk.text)


async def test_call_that_was_lost_is_made_again_and_nothing_computed_twice(stub, verifier):
    first = await completing(stub, request_id="lost", sampling={"temperature": 0.8})
    verifier.requests.clear()
    again = await completing(stub, request_id="lost", sampling={"temperature": 0.8})
    assert again.chunk.token_ids == first.chunk.token_ids
    assert again.chunk.text == first.chunk.text
    assert again.started.epoch == 2
    assert verifier.requests == []


async def test_heartbeats_are_left_out(stub, verifier, monkeypatch):
    monkeypatch.setattr(answers, "HEARTBEAT_S", 0.01)
    hold = Hold()
    verifier.faults.append(hold)
    call = completing(stub)
    await asyncio.wait_for(hold.reached.wait(), 10)
    await asyncio.sleep(0.05)  # silence is what it is about
    hold.released.set()
    assert list((await call).chunk.token_ids) == alone(request().sampling)


async def test_cancelling_the_call_cancels_the_work(stub, verifier):
    verifier.always = hang
    call = completing(stub)
    await asyncio.wait_for(verifier.arrived.wait(), 10)
    call.cancel()
    await asyncio.wait_for(verifier.cancelled.wait(), 10)


async def test_deadline_ends_it(stub, verifier):
    verifier.always = hang
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await completing(stub, timeout=0.3)
    assert raised.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await asyncio.wait_for(verifier.cancelled.wait(), 10)


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        (pb.CompleteRequest(), "request.prompt"),
        (pb.CompleteRequest(request=request(text="")), "request.text"),
        (
            pb.CompleteRequest(request=request(sampling={"temperature": float("nan")})),
            "request.sampling.temperature",
        ),
        (pb.CompleteRequest(request=request(epoch=0)), "request.epoch"),
    ],
)
async def test_wrong_field_is_named_by_its_path(stub, verifier, asked, field):
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await stub.Complete(asked)
    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert invalid_field(raised.value).field == field
    assert error_info(raised.value).reason == "INVALID_FIELD"
    assert verifier.requests == []


async def test_metrics_count_it_as_any_request(stub, recorded: Recorded):
    await completing(stub)
    (point,) = recorded.points(DURATION)
    assert point.count == 1
    assert "error.type" not in point.attributes
    assert recorded.points("gen_ai.server.time_to_first_token")
