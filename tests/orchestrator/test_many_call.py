"""Many requests travel on one call; each is answered, refused, cancelled or late by itself."""

from __future__ import annotations

import asyncio

import grpc
import grpc.aio
import pytest
from tests.orchestrator.conftest import until
from tests.orchestrator.peers import Drafter, Hold, Verifier, hang, passing, raising

from specmesh.mesh.v1alpha1 import drafter_pb2, verifier_pb2
from specmesh.orchestrator.replicas.transport import many_call
from specmesh.orchestrator.replicas.transport.connection import Connection, PlainChannels
from specmesh.orchestrator.replicas.transport.exchange import exchange
from specmesh.orchestrator.replicas.transport.peer import Peer
from specmesh.serving.errors import UnavailableStatus, error_info
from specmesh.serving.rpc import many

NUM_AT_ONCE = 8
DRAFT = drafter_pb2.DraftEachRequest(
    request=drafter_pb2.DraftRequest(
        prefix={"token_ids": [1, 2]}, sampling={"temperature": 0}, depth=3, levels_per_message=1
    )
)


def soon(seconds: float = 10) -> float:
    return asyncio.get_running_loop().time() + seconds


def asking(token: int) -> verifier_pb2.VerifyEachRequest:
    request = verifier_pb2.VerifyRequest(
        prefix={"token_ids": [1, token]}, sampling={"temperature": 0}
    )
    return verifier_pb2.VerifyEachRequest(request=request)


async def verify(peer: Peer, token: int = 2, deadline: float | None = None) -> int:
    """By the call for many requests, even if it is alone."""
    calls = peer._connection.many_verifications
    with exchange(calls, asking(token), deadline or soon()) as sent:
        return (await sent.read()).response.next_token_id


async def verify_all(peer: Peer) -> list[int]:
    return await asyncio.gather(*(verify(peer, token) for token in range(2, 2 + NUM_AT_ONCE)))


async def drafted(peer: Peer) -> list[drafter_pb2.DraftEachResponse]:
    parts: list[drafter_pb2.DraftEachResponse] = []

    def take(part: drafter_pb2.DraftEachResponse) -> float | None:
        parts.append(part)
        return None if part.last else soon()

    with exchange(peer._connection.many_drafts, DRAFT, soon()) as sent:
        await sent.each(take)
    return parts


class Counting(Verifier):
    """Counts the messages with which requests arrive."""

    num_messages = 0

    def VerifyMany(self, request_iterator, context):  # noqa: N802
        async def counted():
            async for held in request_iterator:
                self.num_messages += 1
                yield held

        return super().VerifyMany(counted(), context)


@pytest.fixture
async def verifier(connect) -> tuple[Counting, Peer]:
    fake = Counting()
    return fake, (await connect([fake])).mesh.verifiers.peers[0]


async def ask(peer: Peer, token: int) -> int:
    """By whichever call the peer chooses."""
    with exchange(peer.verifications, asking(token), soon()) as sent:
        return (await sent.read()).response.next_token_id


async def test_requests_at_once_share_a_call(verifier):
    fake, peer = verifier
    assert await verify_all(peer) == [await verify(peer, 2 + n) for n in range(NUM_AT_ONCE)]
    assert (fake.num_open_calls, len(fake.requests)) == (1, 2 * NUM_AT_ONCE)


async def test_requests_that_come_alone_take_turns_on_two_calls_of_their_own(verifier):
    fake, peer = verifier
    for token in range(2, 8):
        await ask(peer, token)
    assert (fake.num_open_calls, fake.num_messages) == (2, 0)


async def test_requests_beside_another_share_messages_until_one_is_alone_again(verifier):
    fake, peer = verifier
    fake.always = hold = Hold()
    first = asyncio.create_task(ask(peer, 2))
    await hold.reached.wait()
    others = [asyncio.create_task(ask(peer, token)) for token in range(3, 3 + NUM_AT_ONCE)]
    while len(fake.requests) <= NUM_AT_ONCE:  # noqa: ASYNC110 - it has no event for this
        await asyncio.sleep(0.01)
    assert fake.num_messages == 2, "the first of the others leaves at once"
    hold.released.set()
    await asyncio.gather(first, *others)
    fake.always = passing
    for token in range(2, 5):
        await ask(peer, token)
    assert fake.num_messages <= 3, "only the one that could not yet know"


async def test_requests_at_once_share_a_message(verifier):
    fake, peer = verifier
    await verify_all(peer)
    assert fake.num_messages == 2, "the first leaves at once, the others together"


async def test_requests_that_are_answered_together_come_back_together(verifier):
    fake, peer = verifier
    fake.always = hold = Hold()

    async def twice(token: int) -> None:
        await verify(peer, token)
        await verify(peer, token)

    asked = [asyncio.create_task(twice(token)) for token in range(NUM_AT_ONCE)]
    async with asyncio.timeout(10):
        while len(fake.requests) < NUM_AT_ONCE:  # noqa: ASYNC110 - it has no event for this
            await asyncio.sleep(0.01)
    assert fake.num_messages == 2
    fake.always = passing
    hold.released.set()
    await asyncio.gather(*asked)
    assert fake.num_messages == 3


async def test_a_request_that_is_refused_fails_alone_and_says_why(verifier):
    fake, peer = verifier
    fake.faults.extend(raising(UnavailableStatus("DRAINING", "going")))
    answers = await asyncio.gather(
        *(verify(peer, token) for token in range(NUM_AT_ONCE)), return_exceptions=True
    )
    (refused,) = (each for each in answers if isinstance(each, BaseException))
    assert isinstance(refused, grpc.aio.AioRpcError)
    assert (refused.code(), refused.details()) == (grpc.StatusCode.UNAVAILABLE, "going")
    info = error_info(refused)
    assert info is not None
    assert info.reason == "DRAINING"
    assert len(set(answers) - {refused}) > 1
    assert fake.num_open_calls == 1


async def test_a_cancelled_request_stops_at_the_peer_and_others_go_on(verifier):
    fake, peer = verifier
    fake.faults.append(hang)
    stopped = asyncio.create_task(verify(peer))
    await fake.arrived.wait()
    fake.always = hold = Hold()
    going_on = asyncio.create_task(verify(peer, 3))
    await hold.reached.wait()
    stopped.cancel()
    await asyncio.wait_for(fake.cancelled.wait(), 10)
    hold.released.set()
    fake.always = passing
    assert await going_on == await verify(peer, 3)
    assert fake.num_open_calls == 1


async def test_a_request_that_is_cancelled_before_it_left_never_leaves(verifier):
    fake, peer = verifier
    fake.always = hold = Hold()
    first = asyncio.create_task(verify(peer, 2))
    await hold.reached.wait()

    async def ask_and_cancel() -> None:
        with exchange(peer.verifications, asking(3), soon()):
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await ask_and_cancel()
    hold.released.set()
    await first
    await verify(peer, 4)
    assert [request.prefix.token_ids[-1] for request in fake.requests] == [2, 4]


async def test_no_answer_in_time_is_a_deadline_exceeded_and_stops_the_peer(verifier):
    fake, peer = verifier
    fake.always = hang
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await verify(peer, deadline=soon(0.2))
    assert raised.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await asyncio.wait_for(fake.cancelled.wait(), 10)


async def test_a_call_that_breaks_fails_all_its_requests_and_the_next_finds_another(verifier):
    fake, peer = verifier
    fake.always = hold = Hold()
    asked = [asyncio.create_task(verify(peer, token)) for token in range(3)]
    await hold.reached.wait()
    await fake.die()
    failed = await asyncio.gather(*asked, return_exceptions=True)
    codes = {each.code() for each in failed if isinstance(each, grpc.aio.AioRpcError)}
    assert codes == {grpc.StatusCode.UNAVAILABLE}
    assert len({id(error) for error in failed}) == 3, "one error would gather the frames of all"
    await until(lambda: not peer.ready, peer)
    fake.always = passing
    await fake.start()
    await until(lambda: peer.ready, peer)
    assert await verify(peer) == await verify(peer)


async def test_drafts_at_once_arrive_whole_and_in_order(connect):
    fake = Drafter()
    peer = (await connect([Verifier()], [fake])).mesh.drafters.peers[0]
    for parts in await asyncio.gather(*(drafted(peer) for _ in range(NUM_AT_ONCE))):
        assert [part.last for part in parts] == [False, False, False, True]
    assert fake.num_open_calls == 1


async def test_large_requests_are_spread_over_messages(verifier, monkeypatch):
    fake, peer = verifier
    monkeypatch.setattr(many_call, "MAX_MESSAGE_BYTES", 1)
    await verify_all(peer)
    assert fake.num_messages == NUM_AT_ONCE


async def test_a_call_of_some_age_gets_no_more_requests_and_ends_with_its_last(
    verifier, monkeypatch
):
    fake, peer = verifier
    fake.always = hold = Hold()
    first = asyncio.create_task(verify(peer))
    await hold.reached.wait()
    monkeypatch.setattr(many_call, "MAX_AGE_SECONDS", -1.0)
    fake.always = passing
    token = await verify(peer)
    assert fake.num_open_calls == 2
    hold.released.set()
    assert await first == token


async def test_a_connection_that_is_replaced_ends_once_its_running_requests_have():
    fake = Counting()
    await fake.start()
    connection = Connection(PlainChannels(), fake.address)
    calls = connection.many_verifications

    async def ask() -> int:
        with exchange(calls, asking(2), soon()) as sent:
            return (await sent.read()).response.next_token_id

    tokens = await asyncio.gather(ask(), ask())
    fake.always = hold = Hold()
    running = asyncio.create_task(ask())
    await hold.reached.wait()
    retiring = asyncio.create_task(connection.retire())
    await asyncio.sleep(0)
    with pytest.raises(grpc.aio.AioRpcError):
        await ask()
    hold.released.set()
    assert await running == tokens[0]
    await asyncio.wait_for(retiring, 10)
    await fake.die()


async def test_refused_requests_are_not_cancelled_as_well(verifier):
    fake, peer = verifier
    fake.faults.extend(raising(*[UnavailableStatus("DRAINING", "going")] * NUM_AT_ONCE))
    await asyncio.gather(
        *(verify(peer, token) for token in range(NUM_AT_ONCE)), return_exceptions=True
    )
    await verify(peer)
    assert fake.num_messages == 3


async def test_a_call_by_which_nothing_comes_gets_no_more_requests(verifier):
    fake, peer = verifier
    fake.always = hang
    with pytest.raises(grpc.aio.AioRpcError):
        await verify(peer, deadline=soon(0.2))
    fake.always = passing
    await verify(peer)
    assert fake.num_open_calls == 2


async def test_large_answers_are_spread_over_messages(connect, monkeypatch):
    monkeypatch.setattr(many, "MAX_MESSAGE_BYTES", 1)
    fake = Drafter()
    peer = (await connect([Verifier()], [fake])).mesh.drafters.peers[0]
    for parts in await asyncio.gather(*(drafted(peer) for _ in range(NUM_AT_ONCE))):
        assert [part.last for part in parts] == [False, False, False, True]


async def test_an_answer_that_fits_in_no_message_fails_alone(verifier, monkeypatch):
    _, peer = verifier
    monkeypatch.setattr(many, "MAX_REQUEST_BYTES", 0)
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await verify(peer)
    info = error_info(raised.value)
    assert info is not None
    assert info.reason == "ANSWER_TOO_LARGE"


async def test_more_requests_than_a_call_may_have_are_refused_one_by_one(verifier, monkeypatch):
    fake, peer = verifier
    monkeypatch.setattr(many, "MAX_RUNNING", 2)
    fake.always = hold = Hold()
    asked = [asyncio.create_task(verify(peer, token)) for token in range(4)]
    done, _ = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
    hold.released.set()
    answers = await asyncio.gather(*asked, return_exceptions=True)
    refused = [each for each in answers if isinstance(each, grpc.aio.AioRpcError)]
    assert done
    assert [each.code() for each in refused] == [grpc.StatusCode.RESOURCE_EXHAUSTED] * 2
