"""Open calls are used again, and replaced when they cannot be."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import grpc
import grpc.aio
import pytest
from tests.orchestrator.conftest import until
from tests.orchestrator.model import features_but
from tests.orchestrator.peers import Drafter, Hold, Verifier, hang, passing

from specmesh.mesh.v1alpha1 import drafter_pb2, verifier_pb2
from specmesh.orchestrator.replicas.transport import stream_pool
from specmesh.orchestrator.replicas.transport.connection import Connection, PlainChannels
from specmesh.orchestrator.replicas.transport.exchange import exchange
from specmesh.orchestrator.replicas.transport.peer import Peer
from specmesh.v1 import model_pb2

VERIFY = verifier_pb2.VerifyEachRequest(
    request=verifier_pb2.VerifyRequest(prefix={"token_ids": [1, 2]}, sampling={"temperature": 0})
)
DRAFT = drafter_pb2.DraftEachRequest(
    request=drafter_pb2.DraftRequest(
        prefix={"token_ids": [1, 2]}, sampling={"temperature": 0}, depth=3, levels_per_message=1
    )
)

ONE_AT_A_TIME = features_but(model_pb2.MODEL_FEATURE_MANY_REQUESTS)


def soon(seconds: float = 10) -> float:
    return asyncio.get_running_loop().time() + seconds


async def verify(peer: Peer, deadline: float | None = None) -> int:
    with exchange(peer.verifications, VERIFY, deadline or soon()) as sent:
        return (await sent.read()).response.next_token_id


async def drafted(peer: Peer) -> list[drafter_pb2.DraftEachResponse]:
    parts: list[drafter_pb2.DraftEachResponse] = []

    def take(part: drafter_pb2.DraftEachResponse) -> float | None:
        parts.append(part)
        return None if part.last else soon()

    with exchange(peer.drafts, DRAFT, soon()) as sent:
        await sent.each(take)
    return parts


@pytest.fixture
async def verifier(connect) -> tuple[Verifier, Peer]:
    fake = Verifier(features=ONE_AT_A_TIME)
    return fake, (await connect([fake])).mesh.verifiers.peers[0]


async def test_requests_one_after_the_other_take_turns_on_two_calls(verifier):
    fake, peer = verifier
    assert len({await verify(peer) for _ in range(5)}) == 1
    assert (fake.num_open_calls, len(fake.requests)) == (2, 5)


class AnotherClock(asyncio.SelectorEventLoop):
    """By contract nobody knows where an event loop's clock begins."""

    def time(self) -> float:
        return super().time() + 1e6


def test_deadlines_hold_whatever_the_event_loops_clock_says():
    async def ask() -> tuple[int, grpc.StatusCode]:
        fake = Verifier(features=ONE_AT_A_TIME)
        await fake.start()
        peer = Peer(fake.address, fake.service, admit=None)
        try:
            token = await verify(peer)
            fake.always = hang
            with pytest.raises(grpc.aio.AioRpcError) as late:
                await verify(peer, soon(0.05))
        finally:
            await peer.close()
            await fake.die()
        return token, late.value.code()

    with asyncio.Runner(loop_factory=AnotherClock) as runner:
        _, code = runner.run(ask())
    assert code is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_requests_at_once_have_a_call_each_and_leave_them_to_the_next(verifier):
    fake, peer = verifier
    for _ in range(2):
        await asyncio.gather(*(verify(peer) for _ in range(3)))
    assert (fake.num_open_calls, len(fake.requests)) == (3, 6)


async def test_calls_beyond_the_limit_are_not_kept(verifier, monkeypatch):
    fake, peer = verifier
    monkeypatch.setattr(stream_pool, "MAX_IDLE", 2)
    for _ in range(2):
        await asyncio.gather(*(verify(peer) for _ in range(3)))
    assert (fake.num_open_calls, len(fake.requests)) == (4, 6)


async def test_a_cancelled_request_stops_at_the_peer_and_the_next_find_calls_open(verifier):
    fake, peer = verifier
    fake.always = hang
    task = asyncio.create_task(verify(peer))
    await fake.arrived.wait()
    task.cancel()
    await fake.cancelled.wait()
    async with asyncio.timeout(10):
        while fake.num_open_calls < 3:  # noqa: ASYNC110 - it has no event for this
            await asyncio.sleep(0.01)
    fake.always = passing
    await asyncio.gather(verify(peer), verify(peer))
    assert fake.num_open_calls == 3


async def test_a_stream_left_in_the_middle_is_cancelled_and_another_one_whole(connect):
    fake, at_work = Drafter(features=ONE_AT_A_TIME), Hold()
    peer = (await connect([Verifier()], [fake])).mesh.drafters.peers[0]
    fake.after_message = at_work
    async with AsyncExitStack() as stack:
        stack.enter_context(pytest.raises(KeyError))
        sent = stack.enter_context(exchange(peer.drafts, DRAFT, soon()))
        await sent.each(lambda part: None)
        await at_work.reached.wait()
        raise KeyError
    await asyncio.wait_for(fake.cancelled.wait(), 10)
    fake.after_message = passing
    parts = await drafted(peer)
    assert [part.last for part in parts] == [False, False, False, True]


async def test_no_answer_in_time_is_a_deadline_exceeded_and_stops_the_peer(verifier):
    fake, peer = verifier
    fake.always = hang
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await verify(peer, soon(0.2))
    assert raised.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await asyncio.wait_for(fake.cancelled.wait(), 10)


async def test_calls_that_ended_while_idle_are_not_used(verifier):
    fake, peer = verifier
    await verify(peer)
    await fake.die()
    await until(lambda: not peer.ready, peer)
    await fake.start()
    await until(lambda: peer.ready, peer)
    assert await verify(peer) == await verify(peer)


async def test_a_connection_that_is_replaced_ends_once_its_running_requests_have():
    fake = Verifier(features=ONE_AT_A_TIME)
    await fake.start()
    connection = Connection(PlainChannels(), fake.address)
    calls = connection.verifications

    async def ask() -> int:
        with exchange(calls, VERIFY, soon()) as sent:
            return (await sent.read()).response.next_token_id

    tokens = await asyncio.gather(ask(), ask())  # leaves two calls open
    fake.always = hold = Hold()
    running = asyncio.create_task(ask())
    await hold.reached.wait()
    retiring = asyncio.create_task(connection.retire())
    await asyncio.sleep(0)
    hold.released.set()
    assert await running == tokens[0]
    await asyncio.wait_for(retiring, 10)
    await fake.die()


async def test_a_peer_that_is_gone_is_unavailable(verifier):
    fake, peer = verifier
    await verify(peer)
    await fake.die()
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await verify(peer, soon(5))
    assert raised.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_an_open_call_of_some_age_gets_no_more_requests(connect, monkeypatch):
    fake = Verifier(features=ONE_AT_A_TIME)
    peer = (await connect([fake])).mesh.verifiers.peers[0]
    for _ in range(3):
        await verify(peer)
    assert fake.num_open_calls == 2
    monkeypatch.setattr(stream_pool, "MAX_AGE_SECONDS", -1.0)
    await verify(peer)
    assert fake.num_open_calls > 2
