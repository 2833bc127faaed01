"""A client that waits for an answer to begin gets heartbeats if it expects them."""

from __future__ import annotations

import asyncio

import pytest
from tests.orchestrator.answers import Answer, alone, collect, request, resuming
from tests.orchestrator.peers import Drafter, Hold, Verifier

from specmesh.orchestrator.admission import controller, room
from specmesh.orchestrator.answers import beginning
from specmesh.v1 import generation_pb2 as pb


@pytest.fixture(autouse=True)
def hurried(monkeypatch):
    """There is room for one answer, and little patience."""
    monkeypatch.setattr(room, "FIRST_PER_REPLICA", 1)
    monkeypatch.setattr(controller, "RESUMED", 1.0)
    monkeypatch.setattr(beginning, "HEARTBEAT_S", 0.02)


@pytest.fixture
def verifier() -> Verifier:
    return Verifier()


@pytest.fixture
async def stub(connect, serve, store_on, redis_server, verifier):
    store = store_on(redis_server.url, timeout_s=10)
    return await serve(await connect([verifier], [Drafter()]), store)


async def dropped(stub, asked: pb.GenerateRequest) -> Answer:
    """What a client has whose stream broke early; the mesh has nothing to do any more."""
    whole = await collect(stub.Generate(asked))
    return Answer(whole.started, whole.chunks[:2])


def from_client(stub, asked, begun):
    rest = pb.GenerateRequest()
    rest.CopyFrom(asked)
    rest.received.CopyFrom(begun.received)
    rest.epoch = 2
    return stub.Generate(rest)


def from_store(stub, asked, begun):
    return stub.Resume(resuming(begun))


@pytest.mark.parametrize("carry_on", [from_client, from_store])
async def test_heartbeats_come_while_an_answer_waits_to_be_carried_on(stub, verifier, carry_on):
    asked = request(sampling={"temperature": 0.8, "seed": 3})
    begun = await dropped(stub, asked)
    busy = Hold()
    verifier.faults.append(busy)
    other = stub.Generate(request())
    await asyncio.wait_for(busy.reached.wait(), 10)
    events = aiter(carry_on(stub, asked, begun))
    first = [(await anext(events)).event.WhichOneof("kind") for _ in range(3)]
    assert first == ["heartbeat"] * 3
    busy.released.set()
    assert begun.then(await collect(events)).tokens == alone(asked.sampling)
    await collect(other)


async def test_an_answer_of_which_nothing_is_told_has_no_room_of_resumed_ones(
    stub, verifier, monkeypatch
):
    monkeypatch.setattr(controller, "RESUMED", 2.0)
    asked = request(sampling={"temperature": 0.8, "seed": 3})
    begun = await dropped(stub, asked)
    busy = Hold()
    verifier.faults.append(busy)
    other = stub.Generate(request())
    await asyncio.wait_for(busy.reached.wait(), 10)
    rest = from_client(stub, asked, begun)
    asked.received.SetInParent()
    waiting = aiter(stub.Generate(asked))
    assert [(await anext(waiting)).event.WhichOneof("kind") for _ in range(3)] == ["heartbeat"] * 3
    assert begun.then(await collect(rest)).tokens == alone(asked.sampling)
    busy.released.set()
    await collect(other)


async def test_a_new_answer_begins_with_started(stub, verifier):
    busy = Hold()
    verifier.faults.append(busy)
    other = stub.Generate(request())
    await asyncio.wait_for(busy.reached.wait(), 10)
    call = stub.Generate(request())
    read = asyncio.ensure_future(anext(aiter(call)))
    await asyncio.wait({read}, timeout=0.1)
    assert not read.done()
    busy.released.set()
    assert (await read).event.HasField("started")
    call.cancel()
    await collect(other)


async def test_heartbeats_come_while_a_new_answer_waits_for_a_client_that_asks_for_them(
    stub, verifier
):
    busy = Hold()
    verifier.faults.append(busy)
    other = stub.Generate(request())
    await asyncio.wait_for(busy.reached.wait(), 10)
    events = aiter(stub.Generate(request(), metadata=(beginning.HEARTBEATS,)))
    first = [(await anext(events)).event.WhichOneof("kind") for _ in range(3)]
    assert first == ["heartbeat"] * 3
    busy.released.set()
    answer = await collect(events)
    assert answer.tokens == (await collect(other)).tokens


async def test_a_call_that_is_left_while_it_waits_holds_no_place(stub, verifier):
    begun = await dropped(stub, request())
    busy = Hold()
    verifier.faults.append(busy)
    other = stub.Generate(request())
    await asyncio.wait_for(busy.reached.wait(), 10)
    waiting = from_store(stub, request(), begun)
    await anext(aiter(waiting))
    waiting.cancel()
    busy.released.set()
    await collect(other)
    assert begun.then(await collect(from_store(stub, request(), begun))).tokens
