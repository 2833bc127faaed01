"""What requests tell the metrics, through the real SDK: when they end, and how."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from tests.metrics import Recorded, recorded
from tests.orchestrator.answers import NUM_TOKENS, alone, collect, refusal, request, resuming
from tests.orchestrator.peers import Drafter, Hold, Verifier, hang, passing, raising

from specmesh.decoding.errors import InvalidField
from specmesh.orchestrator.answers import request_metrics
from specmesh.orchestrator.answers.request_metrics import RequestMetrics
from specmesh.serving.errors import UnavailableStatus
from specmesh.v1 import generation_pb2 as pb

__all__ = ["recorded"]

STATUSES = {"INVALID_ARGUMENT", "NOT_FOUND"}
REASONS = {"INVALID_FIELD", "MODEL_NOT_FOUND"}
DURATION = "gen_ai.server.request.duration"
FIRST_TOKEN = "gen_ai.server.time_to_first_token"
PER_TOKEN = "gen_ai.server.time_per_output_token"
DRAFTED = "specmesh.spec_decode.num_verified_tokens"
ACCEPTED = "specmesh.spec_decode.num_accepted_tokens"
WASTED = "specmesh.spec_decode.num_wasted_tokens"
VERIFIED = "specmesh.spec_decode.num_verify_calls"

SLOW_MS = 50

# https://github.com/open-telemetry/semantic-conventions-genai, docs/gen-ai/gen-ai-metrics.md
BUCKETS = {
    DURATION: "0.01 0.02 0.04 0.08 0.16 0.32 0.64 1.28 2.56 5.12 10.24 20.48 40.96 81.92",
    FIRST_TOKEN: "0.001 0.005 0.01 0.02 0.04 0.06 0.08 0.1 0.25 0.5 0.75 1 2.5 5 7.5 10",
    PER_TOKEN: "0.01 0.025 0.05 0.075 0.1 0.15 0.2 0.3 0.4 0.5 0.75 1 2.5",
}
ANSWERED = {
    "gen_ai.operation.name": "text_completion",
    "gen_ai.provider.name": "specmesh",
    "gen_ai.request.model": "toy",
    "gen_ai.response.model": "toy",
    "specmesh.strategy": "speculative",
}
UNHEARD = {name: ANSWERED[name] for name in ("gen_ai.operation.name", "gen_ai.provider.name")}


def ends(recorded: Recorded) -> list[dict[str, str]]:
    """The attributes under which durations were recorded, in the order of their status; a reader
    has them in the order in which this process first did."""
    found = [dict(point.attributes) for point in recorded.points(DURATION)]
    return sorted(found, key=lambda each: each.get("error.type", ""))


def failed(status: str, attributes: dict[str, str] = ANSWERED) -> dict[str, str]:
    return attributes | {"error.type": status}


@pytest.fixture
async def answering(connect, serve):
    """A mesh whose drafter is always right: eight rounds of four draft tokens and a bonus."""
    verifier = Verifier()
    return await serve(await connect([verifier], [Drafter(agreement=1)])), verifier


@pytest.mark.parametrize("name", BUCKETS)
async def test_durations_fall_into_the_buckets_of_the_conventions(answering, recorded, name):
    stub, _ = answering
    await collect(stub.Generate(request()))
    (point,) = recorded.points(name)
    assert list(point.explicit_bounds) == [float(bound) for bound in BUCKETS[name].split()]
    assert dict(point.attributes) == ANSWERED
    assert (point.count, recorded.metric(name).unit) == (1, "s")
    assert recorded.metric(name).description


async def test_answer_that_was_finished_tells_what_it_took(answering, recorded):
    stub, _ = answering
    stats = (await collect(stub.Generate(request()))).finished.stats
    (duration,), (first,) = recorded.points(DURATION), recorded.points(FIRST_TOKEN)
    (each,) = recorded.points(PER_TOKEN)
    assert duration.sum == pytest.approx(stats.duration_ms / 1e3)
    assert first.sum == pytest.approx(stats.time_to_first_token_ms / 1e3)
    assert each.sum == pytest.approx((duration.sum - first.sum) / (NUM_TOKENS - 1))
    assert recorded.total(DRAFTED) == recorded.total(ACCEPTED) == stats.num_accepted_tokens
    assert recorded.total(VERIFIED) == stats.num_verify_calls
    assert recorded.total(WASTED) == 0


async def test_time_to_first_token_begins_with_the_request(connect, serve, store_on, start_redis):
    """Not once its session is stored."""
    redis = start_redis()
    redis.pause()
    stub = await serve(await connect([Verifier()], [Drafter()]), store_on(redis.url))
    stats = (await collect(stub.Generate(request()))).finished.stats
    assert stats.time_to_first_token_ms > 200  # for so long the store was waited for


async def test_answer_that_its_client_cancels_tells_what_it_took(answering, recorded):
    stub, verifier = answering
    third = Hold()
    verifier.faults.extend([passing, passing, third])
    call = stub.Generate(request())
    begun = await collect(call, num_chunks=2)
    await asyncio.wait_for(third.reached.wait(), 10)
    call.cancel()
    await recorded.wait_for(DURATION)
    assert len(begun.tokens) == 10
    assert ends(recorded) == [failed("CANCELLED")]
    (first,), (each,) = recorded.points(FIRST_TOKEN), recorded.points(PER_TOKEN)
    assert first.attributes == each.attributes == failed("CANCELLED")
    assert each.count == 1
    assert recorded.total(VERIFIED) == 2
    assert recorded.total(DRAFTED) == recorded.total(ACCEPTED) == 8
    assert recorded.total(WASTED) == 4


async def test_answer_that_said_nothing_has_no_first_token(answering, recorded):
    stub, verifier = answering
    verifier.always = hang
    call = stub.Generate(request())
    await asyncio.wait_for(verifier.arrived.wait(), 10)
    call.cancel()
    await recorded.wait_for(DURATION)
    assert ends(recorded) == [failed("CANCELLED")]
    assert recorded.points(FIRST_TOKEN) == []
    assert recorded.total(WASTED) == 4


async def test_answer_whose_deadline_passes_failed_with_it(answering, recorded, monkeypatch):
    """The client's deadline ends the call, and comes before the server's by as much as the
    request was under way: long, on a busy machine."""
    monkeypatch.setattr(request_metrics, "ROUNDING", 0.5)
    stub, verifier = answering
    verifier.always = hang
    with pytest.raises(grpc.aio.AioRpcError):
        await collect(stub.Generate(request(), timeout=0.3))
    await recorded.wait_for(DURATION)
    assert ends(recorded) == [failed("DEADLINE_EXCEEDED")]
    assert recorded.points(DURATION)[0].sum > 0.5 * 0.3


@pytest.mark.parametrize(
    ("ended_s", "status"),
    [(0.95, "CANCELLED"), (1.001, "DEADLINE_EXCEEDED"), (1.02, "DEADLINE_EXCEEDED")],
)
async def test_call_that_ends_with_its_clients_deadline_did_not_meet_it(
    recorded, monkeypatch, ended_s, status
):
    """Servers are told 1.001 s as 1.01 s, so that the client gives up before their deadline."""
    with monkeypatch.context() as patch:
        patch.setattr(asyncio.get_running_loop(), "time", iter([0.0, ended_s, ended_s]).__next__)
        RequestMetrics("Generate", deadline=1.01).__exit__(None, asyncio.CancelledError(), None)
    (point,) = recorded.points(DURATION)
    assert point.attributes["error.type"] == status
    assert point.sum == pytest.approx(ended_s)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (UnavailableStatus("DRAINING", "going"), "UNAVAILABLE"),
        (InvalidField("tree", "no tree"), "INTERNAL"),
    ],
)
async def test_answer_that_the_mesh_fails_tells_the_status(
    answering, recorded, monkeypatch, error, status
):
    monkeypatch.setattr("specmesh.orchestrator.replicas.retries.attempts.PAUSE_SECONDS", 0.001)
    stub, verifier = answering
    verifier.faults.append(passing)
    verifier.always = raising(error)[0]
    call = stub.Generate(request())
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await collect(call)
    assert raised.value.code().name == status
    assert ends(recorded) == [failed(status)]
    assert recorded.total(VERIFIED) == 1
    assert recorded.points(FIRST_TOKEN)[0].count == 1


async def test_request_that_is_refused_has_a_duration_too(connect, serve, recorded):
    stub = await serve(await connect([Verifier()]))
    await refusal(stub.Generate(request(sampling={"temperature": -1})))
    await refusal(stub.Generate(request()))
    await refusal(stub.Resume(pb.ResumeRequest(session_id="a", resume_token=b"b", epoch=2)))
    assert ends(recorded) == [
        failed("FAILED_PRECONDITION"),
        failed("INVALID_ARGUMENT", UNHEARD),
        failed("UNAVAILABLE", UNHEARD),
    ]


async def test_requests_are_counted_by_status_and_by_the_reason_that_the_client_is_told(
    connect, serve, recorded
):
    stub = await serve(await connect([Verifier()]))
    await collect(stub.Generate(request(speculation={"strategy": "autoregressive"})))
    await refusal(stub.Generate(request()))
    await refusal(stub.Generate(request(sampling={"temperature": -1})))
    found = {
        (point.attributes["rpc.response.status_code"], point.attributes.get("specmesh.reason"))
        for point in recorded.points("specmesh.requests")
    }
    assert found == {
        ("OK", None),
        ("FAILED_PRECONDITION", "NO_FITTING_DRAFTER"),
        ("INVALID_ARGUMENT", "INVALID_FIELD"),
    }


@pytest.mark.parametrize("asked", [{"model": "x" * 99}, {"speculation": {"strategy": "x" * 99}}])
async def test_names_that_only_a_request_gives_are_no_attributes(answering, recorded, asked):
    stub, _ = answering
    wrong = request()
    wrong.MergeFrom(pb.GenerateRequest(**asked))
    await refusal(stub.Generate(wrong))
    values = {
        value
        for name in (DURATION, "specmesh.requests")
        for point in recorded.points(name)
        for value in point.attributes.values()
    }
    assert values <= {"text_completion", "specmesh"} | STATUSES | REASONS


async def test_tokens_are_counted_as_they_are_used(answering, recorded):
    stub, _ = answering
    stats = (await collect(stub.Generate(request()))).finished.stats
    usage = {
        point.attributes["gen_ai.token.type"]: point.sum
        for point in recorded.points("specmesh.token.usage")
    }
    assert usage == {"input": stats.num_prompt_tokens, "output": NUM_TOKENS}
    (drafted,) = recorded.points("specmesh.spec_decode.num_drafted_tokens")
    assert drafted.value == stats.num_drafted_tokens
    assert dict(drafted.attributes) == {
        "gen_ai.operation.name": "text_completion",
        "gen_ai.request.model": "toy",
        "specmesh.strategy": "speculative",
    }


async def test_resumed_answers_are_counted_by_where_they_went_on_from(broken_off, recorded):
    stub, begun, _ = broken_off
    recorded = Recorded(recorded.reader)
    await collect(stub.Resume(resumed(begun, 7)))
    again = request()
    again.received.token_ids.extend(alone(request().sampling)[:7])
    await collect(stub.Generate(again))
    points = recorded.points("specmesh.requests.resumed")
    found = {point.attributes["specmesh.resumed_from"]: point.value for point in points}
    assert found == {"store": 1, "client": 1}


async def test_client_that_leaves_with_the_last_message_is_no_failure(answering, recorded):
    stub, _ = answering
    call = stub.Generate(request())
    async for response in call:
        if response.event.HasField("finished"):
            call.cancel()
            break
    await recorded.wait_for(DURATION)
    assert ends(recorded) == [ANSWERED]


@pytest.fixture
async def broken_off(connect, serve, store_on, redis_server, recorded):
    """An answer of which the store holds ten tokens, and who may resume it."""
    verifier, third = Verifier(), Hold()
    behind = await connect([verifier], [Drafter(agreement=1)])
    stub = await serve(behind, store_on(redis_server.url))
    verifier.faults.extend([passing, passing, third])
    call = stub.Generate(request())
    begun = await collect(call, num_chunks=2)
    await asyncio.wait_for(third.reached.wait(), 10)
    call.cancel()
    await recorded.wait_for(DURATION)
    assert len(begun.tokens) == 10
    return stub, begun, verifier


async def slow() -> None:
    """A target that takes its time."""
    await asyncio.sleep(SLOW_MS / 1e3)


def resumed(begun, num_received: int) -> pb.ResumeRequest:
    tokens = alone(request().sampling)
    return resuming(begun, received=pb.Received(token_ids=tokens[:num_received]))


@pytest.mark.parametrize("num_received", [0, 7, 10])
async def test_first_token_of_a_resumed_answer_is_the_first_new_one(
    broken_off, recorded, num_received
):
    stub, begun, verifier = broken_off
    recorded = Recorded(recorded.reader)
    verifier.faults.append(slow)
    stats = (await collect(stub.Resume(resumed(begun, num_received)))).finished.stats
    (duration,), (each,) = recorded.points(DURATION), recorded.points(PER_TOKEN)
    assert stats.time_to_first_token_ms >= SLOW_MS
    assert recorded.points(FIRST_TOKEN)[0].sum == pytest.approx(stats.time_to_first_token_ms / 1e3)
    rest_s = duration.sum - stats.time_to_first_token_ms / 1e3
    assert each.sum == pytest.approx(rest_s / (NUM_TOKENS - 10 - 1), rel=1e-3)


async def test_tokens_that_the_client_has_are_not_new_even_if_the_store_lost_them(
    broken_off, recorded
):
    stub, begun, _ = broken_off
    recorded = Recorded(recorded.reader)
    answer = await collect(stub.Resume(resumed(begun, NUM_TOKENS - 1)))
    assert len(answer.tokens) == 1
    assert recorded.points(FIRST_TOKEN)[0].count == 1
    assert recorded.points(PER_TOKEN) == []  # there is no second one


async def test_answer_that_is_only_told_again_has_no_first_token(
    connect, serve, store_on, redis_server, recorded
):
    stub = await serve(await connect([Verifier()], [Drafter()]), store_on(redis_server.url))
    whole = await collect(stub.Generate(request()))
    recorded = Recorded(recorded.reader)
    stats = (await collect(stub.Resume(resumed(whole, 0)))).finished.stats
    assert (stats.num_output_tokens, stats.time_to_first_token_ms) == (NUM_TOKENS, 0)
    assert ends(recorded) == [ANSWERED]
    assert recorded.points(FIRST_TOKEN) == recorded.points(PER_TOKEN) == []
