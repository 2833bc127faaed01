"""For a moment after a refusal for lack of room, no call is made only to be refused as well."""

import asyncio

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from tests.client.conftest import FakeOrchestrator, refuses, whole_answer

from specmesh.client import AsyncClient, Overloaded, SpecmeshError
from specmesh.client.connections import channels, refusals

Code = grpc.StatusCode


def after(seconds: float) -> RetryInfo:
    """The delay after which a refused client should come again."""
    return RetryInfo(retry_delay=Duration(nanos=round(seconds % 1 * 1e9), seconds=int(seconds)))


@pytest.fixture
def full_for_a_minute(monkeypatch):
    monkeypatch.setattr(channels, "FULL_S", 60.0)
    monkeypatch.setattr(refusals, "FULL_S", 60.0)


@pytest.mark.usefixtures("full_for_a_minute")
async def test_when_none_has_room_the_next_answers_are_refused_without_a_call(serve):
    full = refuses(Code.RESOURCE_EXHAUSTED, "full", "OVERLOADED", after(60))
    fakes = [await serve(FakeOrchestrator([full])) for _ in range(2)]
    async with AsyncClient(*(each.address for each in fakes), max_retries=0) as client:
        errors = [await refused(client.generate("hello")) for _ in range(4)]
    assert [len(each.requests) for each in fakes] == [1, 1]
    assert len(set(map(id, errors))) == 4  # each is a reader's own: what was read is added to it
    for each in errors:
        assert isinstance(each, Overloaded)
        assert (str(each), each.reason, each.retry_after_s) == ("full", "OVERLOADED", 60)


async def refused(stream):
    with pytest.raises(SpecmeshError) as caught:
        await stream
    return caught.value


@pytest.mark.usefixtures("full_for_a_minute")
async def test_another_caller_asks_for_itself_because_each_has_its_own_share(serve):
    full = refuses(Code.RESOURCE_EXHAUSTED, "full", "OVERLOADED", after(60))
    fake = await serve(FakeOrchestrator([full, whole_answer, whole_answer]))
    names = iter("abba")
    client = AsyncClient(fake.address, max_retries=0, metadata=lambda: (("caller", next(names)),))
    async with client:
        await refused(client.generate("hello"))
        await client.generate("hello")
        await client.generate("hello")
        await refused(client.generate("hello"))
    assert len(fake.requests) == 3


@pytest.mark.usefixtures("full_for_a_minute")
async def test_an_answer_with_more_time_asks_for_itself_because_it_may_wait_longer(serve):
    full = refuses(Code.RESOURCE_EXHAUSTED, "full", "OVERLOADED", after(60))
    fake = await serve(FakeOrchestrator([full, whole_answer]))
    async with AsyncClient(fake.address, max_retries=0) as client:
        await refused(client.generate("hello", timeout_s=5))
        await refused(client.generate("hello", timeout_s=4))
        await client.generate("hello", timeout_s=90)
    assert len(fake.requests) == 2


@pytest.mark.parametrize("delay", [(), (after(0.01),)])
async def test_a_refusal_holds_no_longer_than_the_delay_that_it_asks_for(serve, delay):
    full = refuses(Code.RESOURCE_EXHAUSTED, "full", "OVERLOADED", *delay)
    fake = await serve(FakeOrchestrator([full, whole_answer]))
    async with AsyncClient(fake.address, max_retries=0) as client:
        await refused(client.generate("hello"))
        await asyncio.sleep(0.02)
        await client.generate("hello")
    assert len(fake.requests) == 2


@pytest.mark.usefixtures("full_for_a_minute")
async def test_an_orchestrator_with_room_is_asked_first(serve):
    refused = refuses(Code.RESOURCE_EXHAUSTED, "full", "OVERLOADED", after(60))
    full = await serve(FakeOrchestrator([refused]))
    free = await serve(FakeOrchestrator([whole_answer] * 3))
    async with AsyncClient(full.address, free.address, max_retries=0) as client:
        for _ in range(3):
            await client.generate("hello")
    assert (len(full.requests), len(free.requests)) == (1, 3)
