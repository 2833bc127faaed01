"""For a moment after a refusal for lack of room, no call is made only to be refused as well."""

import asyncio
from random import Random

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from tests.client.conftest import (
    FakeOrchestrator,
    breaks_after,
    refuses,
    rest_of_answer,
    whole_answer,
)

from specmesh.client import AsyncClient, Client, Overloaded, SpecmeshError
from specmesh.client.connections import channels, refusals
from specmesh.client.connections.refusals import FULL_S, Refusals
from specmesh.client.testing import FakeMesh

Code = grpc.StatusCode
CALLER = (("authorization", "Bearer a"),)


def full(*, wait_ms="600000", retry_s=60.0):
    """A refusal as an orchestrator makes it whose answers wait for ``wait_ms``."""
    told = {"expected_wait_ms": wait_ms} if wait_ms else {}
    info = ErrorInfo(reason="OVERLOADED", domain="specmesh.dev", metadata=told)
    delay = Duration()
    delay.FromNanoseconds(round(retry_s * 1e9))
    return refuses(Code.RESOURCE_EXHAUSTED, "full", "", info, RetryInfo(retry_delay=delay))


def refusal(*, wait_ms="600000", retry_s=60.0):
    return Overloaded(
        "full",
        code=Code.RESOURCE_EXHAUSTED,
        reason="OVERLOADED",
        metadata={"expected_wait_ms": wait_ms},
        retry_after_s=retry_s,
    )


async def refused(stream):
    with pytest.raises(SpecmeshError) as caught:
        await stream
    return caught.value


@pytest.fixture
def full_for_a_minute(monkeypatch):
    monkeypatch.setattr(channels, "FULL_S", 60.0)
    monkeypatch.setattr(refusals, "FULL_S", 60.0)


@pytest.mark.usefixtures("full_for_a_minute")
async def test_when_none_has_room_the_next_answers_are_refused_without_a_call(serve):
    fakes = [await serve(FakeOrchestrator([full()])) for _ in range(2)]
    async with AsyncClient(*(each.address for each in fakes), max_retries=0) as client:
        errors = [await refused(client.generate("hello")) for _ in range(4)]
    assert [len(each.requests) for each in fakes] == [1, 1]
    assert len(set(map(id, errors))) == 4  # each is a reader's own: what was read is added to it
    for each in errors:
        assert isinstance(each, Overloaded)
        assert (str(each), each.reason) == ("full", "OVERLOADED")
        assert 60 <= each.retry_after_s <= 90  # never sooner than asked for
    assert len({each.retry_after_s for each in errors}) > 1  # not all are to come back together


@pytest.mark.usefixtures("full_for_a_minute")
async def test_who_was_told_that_one_has_no_room_asks_it_again_a_little_later(serve):
    silent = full(wait_ms="")  # about how long others wait
    fakes = [await serve(FakeOrchestrator([silent, silent])) for _ in range(2)]
    async with AsyncClient(*(each.address for each in fakes), max_retries=0) as client:
        for _ in range(3):
            await refused(client.generate("hello"))
    assert sum(len(each.requests) for each in fakes) == 4  # both once, and then one for each


@pytest.mark.usefixtures("full_for_a_minute")
@pytest.mark.parametrize("told", [{}, {"wait_ms": ""}])
async def test_an_orchestrator_with_room_is_asked_first(serve, told):
    none = await serve(FakeOrchestrator([full(**told)]))
    free = await serve(FakeOrchestrator([whole_answer] * 3))
    async with AsyncClient(none.address, free.address, max_retries=0) as client:
        for _ in range(3):
            await client.generate("hello")
    assert (len(none.requests), len(free.requests)) == (1, 3)


@pytest.mark.usefixtures("full_for_a_minute")
async def test_another_caller_asks_for_itself_because_each_has_its_own_share(serve):
    fake = await serve(FakeOrchestrator([full(), whole_answer, whole_answer]))
    names = iter("abba")
    client = AsyncClient(fake.address, max_retries=0, metadata=lambda: (("caller", next(names)),))
    async with client:
        await refused(client.generate("hello"))
        await client.generate("hello")
        await client.generate("hello")
        await refused(client.generate("hello"))
    assert len(fake.requests) == 3


class NamesItsCaller(grpc.aio.UnaryStreamClientInterceptor):
    async def intercept_unary_stream(self, continuation, details, request):
        return await continuation(details, request)


@pytest.mark.usefixtures("full_for_a_minute")
async def test_interceptors_may_name_another_caller(serve):
    fake = await serve(FakeOrchestrator([full(), whole_answer]))
    interceptors = [NamesItsCaller()]
    async with AsyncClient(fake.address, max_retries=0, interceptors=interceptors) as client:
        await refused(client.generate("hello"))
        await client.generate("hello")


@pytest.mark.usefixtures("full_for_a_minute")
async def test_behind_a_name_others_may_have_room(serve):
    fake = await serve(FakeOrchestrator([full(), whole_answer]))
    name = f"dns:///{fake.address}"
    async with AsyncClient(name, max_retries=0) as client:
        await refused(client.generate("hello"))
        await client.generate("hello")


@pytest.mark.usefixtures("full_for_a_minute")
async def test_an_answer_with_more_time_asks_for_itself_because_it_may_wait_longer(serve):
    fake = await serve(FakeOrchestrator([full(), whole_answer]))
    async with AsyncClient(fake.address, max_retries=0) as client:
        await refused(client.generate("hello", timeout_s=5))
        await refused(client.generate("hello", timeout_s=4))
        await client.generate("hello", timeout_s=90)
    assert len(fake.requests) == 2


@pytest.mark.parametrize(
    "little", [{"retry_s": 0.01}, {"retry_s": 0.0}, {"wait_ms": "100"}, {"wait_ms": ""}]
)
async def test_a_refusal_that_says_little_about_the_next_answer_hardly_holds(serve, little):
    fake = await serve(FakeOrchestrator([full(**little), whole_answer]))
    async with AsyncClient(fake.address, max_retries=0) as client:
        await refused(client.generate("hello"))
        await asyncio.sleep(0.02)
        await client.generate("hello")
    assert len(fake.requests) == 2


@pytest.mark.usefixtures("full_for_a_minute")
async def test_an_answer_that_has_begun_is_always_asked_for(serve):
    fake = await serve(FakeOrchestrator([breaks_after(4)], [rest_of_answer(4)]))
    async with AsyncClient(fake.address, max_retries=0) as client:
        stream = client.generate("hello", timeout_s=5)
        reading = aiter(stream)
        await anext(reading)
        (target,) = client._mesh.here()._targets
        target.lacked_room(refusal(), (), 60.0)
        async for _ in reading:
            pass
        assert stream.result.num_resumes == 1
        await refused(client.generate("hello", timeout_s=5))


@pytest.mark.usefixtures("full_for_a_minute")
def test_without_asyncio_as_well():
    with FakeMesh() as mesh, Client(mesh.address, max_retries=0) as client:
        mesh.fail(Code.RESOURCE_EXHAUSTED, "OVERLOADED", retry_after_s=60)
        with pytest.raises(Overloaded):
            client.complete("hello")
        mesh.answer("fine")
        assert client.complete("hello").text == "fine"  # it did not say how long others wait


@pytest.mark.usefixtures("full_for_a_minute")
async def test_an_answer_that_is_tried_again_finds_the_room_that_there_is_by_then(serve):
    fake = await serve(FakeOrchestrator([full(retry_s=0.6), whole_answer, whole_answer]))

    async def ask():
        return await client.generate("hello")

    async with AsyncClient(fake.address, max_retries=2) as client:
        first = asyncio.create_task(ask())
        await asyncio.sleep(0.1)
        await asyncio.gather(first, ask())
    assert len(fake.requests) == 3  # the second answer was refused without a call at first


def test_no_refusal_holds_for_long_however_late_the_caller_is_to_come_back():
    held = Refusals(Random(0))
    held.add(refusal(), CALLER, 600.0, now=10.0)
    assert held.find(CALLER, 600.0, now=10.0 + 0.99 * FULL_S) is not None
    assert held.find(CALLER, 600.0, now=10.0 + FULL_S) is None


def test_a_refusal_of_less_time_to_wait_adds_nothing_to_one_of_more():
    held = Refusals(Random(0))
    held.add(refusal(), CALLER, 600.0, now=10.0)
    held.add(refusal(), CALLER, 5.0, now=10.1)
    assert held.find(CALLER, 600.0, now=10.2) is not None


def test_what_does_not_hold_any_more_is_forgotten():
    held = Refusals(Random(0))
    for number in range(1000):
        held.add(refusal(), (("caller", str(number)),), 600.0, now=number * FULL_S / 10)
    assert len(held) <= 10
    assert held.find(CALLER, 600.0, now=1000.0) is None
    assert len(held) == 0


def test_a_reader_may_change_what_it_was_told():
    held = Refusals(Random(0))
    held.add(refusal(), CALLER, 600.0, now=10.0)
    held.find(CALLER, 600.0, now=10.0).metadata.clear()
    assert held.find(CALLER, 600.0, now=10.0).metadata
