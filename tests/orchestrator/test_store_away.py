"""Without Redis answers come all the same, and say that they cannot be resumed; once it is back
they can be again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import grpc
import grpc.aio
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from redis.asyncio import Redis
from tests.orchestrator.answers import (
    NUM_TOKENS,
    Answer,
    alone,
    collect,
    refusal,
    request,
    resuming,
)
from tests.orchestrator.peers import Drafter, Hold, Verifier, passing
from tests.ports import free_port
from tests.serving.conftest import RedisServer

from specmesh.orchestrator.answers import session_log
from specmesh.serving.errors import error_info
from specmesh.serving.store import patience
from specmesh.v1 import events_pb2
from specmesh.v1 import generation_pb2 as pb
from specmesh.v1.generation_pb2_grpc import GenerationServiceStub

REJECTION = {"temperature": 0.8, "seed": 5, "acceptance_mode": "ACCEPTANCE_MODE_REJECTION"}


@pytest.fixture
def counted(monkeypatch):
    """How many answers the metric says cannot be resumed, read through the real SDK."""
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    counter = provider.get_meter("test").create_counter("specmesh.sessions.not_resumable")
    monkeypatch.setattr(session_log, "_not_resumable", counter)

    def read() -> int:
        data = reader.get_metrics_data()
        if data is None:
            return 0
        (resource,) = data.resource_metrics
        (scope,) = resource.scope_metrics
        (metric,) = scope.metrics
        return sum(point.value for point in metric.data.data_points)

    yield read
    provider.shutdown()


async def test_orchestrator_without_a_store_answers_but_resumes_nothing(connect, serve):
    stub = await serve(await connect([Verifier()], [Drafter()]))
    answer = await collect(stub.Generate(request()))
    assert answer.tokens == alone(request().sampling)
    assert not answer.started.resumable
    assert not answer.finished.resumable
    assert await refusal(stub.Resume(resuming(answer))) == (grpc.StatusCode.UNAVAILABLE, "NO_STORE")


async def test_redis_that_is_away_from_the_start_costs_only_resumption(
    connect, serve, store_on, counted
):
    store = store_on(f"redis://127.0.0.1:{free_port()}")
    stub = await serve(await connect([Verifier()], [Drafter()]), store)
    answer = await collect(stub.Generate(request()))
    assert answer.tokens == alone(request().sampling)
    assert not answer.started.resumable
    assert not answer.finished.resumable
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await collect(stub.Resume(resuming(answer)))
    assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
    assert error_info(raised.value).reason == "STORE_UNAVAILABLE"
    assert store.address.rpartition(":")[2] not in str(raised.value)
    assert counted() == 1


async def test_a_named_start_does_not_wait_for_redis_that_hangs(
    connect, serve, store_on, start_redis
):
    redis = start_redis()
    redis.pause()
    stub = await serve(await connect([Verifier()], [Drafter()]), store_on(redis.url, timeout_s=60))
    named = request()
    named.request_id = "start"
    async with asyncio.timeout(20):
        answer = await collect(stub.Generate(named))
    assert answer.tokens == alone(request().sampling)
    assert not answer.started.resumable


async def test_a_named_start_that_redis_runs_late_is_the_session_of_its_answer(
    connect, serve, store_on, start_redis, monkeypatch
):
    redis, verifier = start_redis(), Verifier()
    stubs = [
        await serve(await connect([verifier]), store_on(redis.url, timeout_s=10)) for _ in range(2)
    ]
    asked = {"speculation": {"strategy": "autoregressive"}, "sampling": REJECTION}
    named = request(request_id="start", **asked)
    await collect(stubs[0].Generate(request(**asked)))  # so that it is connected
    redis.pause()
    turnstile = Turnstile()
    verifier.always = turnstile
    first = Reader(stubs[0].Generate(named), turnstile)
    assert not (await first.next_chunk()).resumable
    for bound in ("SHORTEST_S", "LONGEST_S"):  # the other orchestrator is to be told for sure
        monkeypatch.setattr(patience, bound, 10.0)
    redis.resume()
    await first.until_resumable(resumable=True)
    turnstile.turn(10 * NUM_TOKENS)
    again = await collect(stubs[1].Generate(named), num_chunks=1)
    session_id = first.answer.started.session_id
    assert (again.started.session_id, again.started.epoch) == (session_id, 2)
    async with Redis.from_url(redis.url) as stored:
        assert len(await stored.keys("*:session")) == 2


async def test_an_answer_whose_session_turns_out_to_be_anothers_goes_on_without_one(
    connect, serve, store_on, start_redis
):
    redis, verifier = start_redis(), Verifier()
    stubs = [
        await serve(await connect([verifier]), store_on(redis.url, timeout_s=10)) for _ in range(2)
    ]
    asked = {"speculation": {"strategy": "autoregressive"}}
    named = request(request_id="start", **asked)
    first = await collect(stubs[0].Generate(named))
    await collect(stubs[1].Generate(request(**asked)))  # so that it is connected
    redis.pause()
    turnstile = Turnstile()
    verifier.always = turnstile
    again = Reader(stubs[1].Generate(named), turnstile)
    assert not (await again.next_chunk()).resumable
    redis.resume()
    for _ in range(NUM_TOKENS - 2):
        assert not (await again.next_chunk()).resumable
        await asyncio.sleep(0.02)  # for Redis to come to itself
    turnstile.turn(10)
    answer = await collect(again.call, begun=again.answer)
    assert answer.tokens == first.tokens
    assert not answer.finished.resumable


@pytest.mark.parametrize("harm", ["kill", "pause"])
async def test_redis_lost_within_an_answer_costs_only_resumption(
    connect, serve, store_on, start_redis, counted, caplog, harm
):
    caplog.set_level("INFO")
    redis, verifier, third = start_redis(), Verifier(), Hold()
    verifier.faults.extend([passing, passing, third])
    stub = await serve(await connect([verifier], [Drafter()]), store_on(redis.url))
    call = stub.Generate(request())
    begun = await collect(call, num_chunks=2)
    assert begun.started.resumable
    await asyncio.wait_for(third.reached.wait(), 10)
    getattr(redis, harm)()
    third.released.set()
    answer = await collect(call, begun=begun)
    assert answer.tokens == alone(request().sampling)
    assert not answer.finished.resumable
    assert counted() == 1
    (lags,) = [each for each in caplog.records if each.getMessage() == "store lags"]
    assert vars(lags)["store"] == f"127.0.0.1:{redis.port}"
    assert vars(lags)["reason"]
    assert lags.levelname == "INFO"


class Turnstile:
    """Lets verifications through one by one."""

    def __init__(self) -> None:
        self._passes = asyncio.Semaphore(0)

    async def __call__(self) -> None:
        await self._passes.acquire()

    def turn(self, times: int = 1) -> None:
        for _ in range(times):
            self._passes.release()


@dataclass
class Reader:
    """Reads an answer of one token a chunk, whose verifications wait at a turnstile."""

    call: grpc.aio.UnaryStreamCall
    turnstile: Turnstile
    answer: Answer = field(default_factory=Answer)

    async def next_chunk(self) -> events_pb2.GenerationChunk:
        self.turnstile.turn()
        num_chunks = len(self.answer.chunks) + 1
        async with asyncio.timeout(10):
            await collect(self.call, num_chunks, begun=self.answer)
        return self.answer.chunks[-1]

    async def until_resumable(self, *, resumable: bool) -> None:
        for _ in range(NUM_TOKENS):
            if (await self.next_chunk()).resumable == resumable:
                return
            await asyncio.sleep(0.1)  # for Redis to come to itself
        pytest.fail(f"no chunk came with resumable={resumable}")


@pytest.fixture
def read_slowly(connect, serve, store_on):
    """Begins an answer on a store of its own."""

    async def begun(url: str) -> tuple[Reader, GenerationServiceStub]:
        verifier, turnstile = Verifier(), Turnstile()
        verifier.always = turnstile
        stubs = [
            await serve(await connect([verifier]), store_on(url, timeout_s=0.3)) for _ in range(2)
        ]
        asked = request(speculation={"strategy": "autoregressive"}, sampling=REJECTION)
        reader = Reader(stubs[0].Generate(asked), turnstile)
        for _ in range(2):
            assert (await reader.next_chunk()).resumable
        return reader, stubs[1]

    return begun


def harmed_and_mended(redis: RedisServer, harm: str) -> tuple[Callable, Callable]:
    if harm == "pause":
        return redis.pause, redis.resume
    if harm == "kill":
        return redis.kill, redis.start
    return redis.kill, redis.start_empty


@pytest.mark.parametrize("harm", ["pause", "kill", "lose everything"])
async def test_store_that_comes_back_gets_the_whole_answer(start_redis, read_slowly, harm):
    redis = start_redis()
    harming, mending = harmed_and_mended(redis, harm)
    reader, heir = await read_slowly(redis.url)
    await asyncio.to_thread(harming)
    await reader.until_resumable(resumable=False)
    await asyncio.to_thread(mending)
    await reader.until_resumable(resumable=True)
    reader.call.cancel()
    told_again = heir.Resume(resuming(reader.answer, received=pb.Received()))
    from_store = await collect(told_again, num_chunks=1)
    assert from_store.tokens[: len(reader.answer.tokens)] == reader.answer.tokens
    told_again.cancel()


async def test_no_two_answers_are_joined_where_the_store_has_fewer_tokens_than_the_client(
    start_redis, read_slowly
):
    redis = start_redis()
    reader, heir = await read_slowly(redis.url)
    redis.pause()
    for _ in range(5):
        await reader.next_chunk()
    reader.call.cancel()
    redis.resume()
    reader.turnstile.turn(10 * NUM_TOKENS)
    rest = await collect(heir.Resume(resuming(reader.answer)))
    joined = reader.answer.then(rest)
    told_again = heir.Resume(resuming(rest, received=pb.Received()))
    assert (await collect(told_again)).tokens == joined.tokens


async def test_slow_moment_of_the_store_costs_a_moment(start_redis, read_slowly, counted):
    """Where one slow append was once enough to give the store up."""
    redis = start_redis()
    reader, _ = await read_slowly(redis.url)
    redis.pause()
    chunk = await reader.next_chunk()
    assert not chunk.resumable
    redis.resume()
    await reader.until_resumable(resumable=True)
    assert counted() == 1


async def test_answer_that_was_taken_over_while_the_store_was_slow_ends(start_redis, read_slowly):
    redis = start_redis()
    reader, heir = await read_slowly(redis.url)
    redis.pause()
    await reader.next_chunk()
    redis.resume()
    taken = heir.Resume(resuming(reader.answer))
    await taken.read()
    reader.turnstile.turn(10 * NUM_TOKENS)
    assert await refusal(reader.call) == (grpc.StatusCode.ABORTED, "STALE_EPOCH")
    taken.cancel()
