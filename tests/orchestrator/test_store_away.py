"""Without Redis answers come all the same, and say that they cannot be resumed."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from tests.orchestrator.answers import alone, collect, refusal, request
from tests.orchestrator.peers import Drafter, Hold, Verifier, passing
from tests.serving.conftest import free_port

from specmesh.orchestrator import session_log
from specmesh.v1 import generation_pb2 as pb


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
    asked = pb.ResumeRequest(session_id=answer.started.session_id, epoch=1)
    assert await refusal(stub.Resume(asked)) == (grpc.StatusCode.UNAVAILABLE, "NO_STORE")


async def test_redis_that_is_away_from_the_start_costs_only_resumption(
    connect, serve, store_on, counted
):
    store = store_on(f"redis://127.0.0.1:{free_port()}")
    stub = await serve(await connect([Verifier()], [Drafter()]), store)
    answer = await collect(stub.Generate(request()))
    assert answer.tokens == alone(request().sampling)
    assert not answer.started.resumable
    assert not answer.finished.resumable
    asked = pb.ResumeRequest(session_id=answer.started.session_id, epoch=1)
    expected = (grpc.StatusCode.UNAVAILABLE, "STORE_UNAVAILABLE")
    assert await refusal(stub.Resume(asked)) == expected
    assert counted() == 1


@pytest.mark.parametrize("harm", ["kill", "pause"])
async def test_redis_lost_within_an_answer_costs_only_resumption(
    connect, serve, store_on, start_redis, counted, harm
):
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
