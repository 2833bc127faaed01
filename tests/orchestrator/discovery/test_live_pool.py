"""Replicas that join and leave, and processes that change behind an address."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import grpc.aio
import pytest
from tests.orchestrator.answers import alone, collect, request
from tests.orchestrator.conftest import connect, serve
from tests.orchestrator.peers import NOT_SERVING, SERVING, Drafter, Hold, Verifier
from tests.orchestrator.test_calls import ANSWER, PROMPT, calls_on, drafted, verified

from specmesh.orchestrator.replicas.pool.outliers import MAX_IN_A_ROW
from specmesh.orchestrator.replicas.pool.replica_pool import Pool
from specmesh.orchestrator.replicas.pool.slow_start import WINDOW_SECONDS
from specmesh.orchestrator.replicas.prefixes.prefix import CommittedPrefix
from specmesh.orchestrator.replicas.replica_pools import ReplicaPools
from specmesh.serving.errors import FailedPreconditionStatus, UnavailableStatus

__all__ = ["connect", "serve"]


async def comes(pool: Pool, condition: Callable[[], bool]) -> None:
    """Wait for what a change of the pool brings about."""
    changed = asyncio.Event()
    with pool.watched(changed.set):
        async with asyncio.timeout(10):
            while not condition():
                changed.clear()
                await changed.wait()


async def joined(pool: Pool, fake: Verifier) -> None:
    """Start a replica and let it join."""
    await fake.start()
    pool.add(fake.address)
    await comes(pool, lambda: fake.address in {peer.address for peer in pool.ready})


def fail(pool: Pool, peer, times: int = MAX_IN_A_ROW + 1) -> None:
    for _ in range(times):
        pool.failed(peer, began=asyncio.get_running_loop().time())


def answered_by(mesh: ReplicaPools, replica: str) -> dict[str, int]:
    """After an answer by that replica: who is believed to hold the prompt."""
    prefix = CommittedPrefix("s", PROMPT, mesh.holders)
    prefix.seen_by(replica, prefix.length)
    prefix.close()
    return CommittedPrefix("next", PROMPT, mesh.holders).holds


def remembered(mesh: ReplicaPools) -> set[str]:
    """The replicas of which latencies are known."""
    latencies = mesh.latencies
    paces = latencies.verifications, latencies.further, *latencies._drafts.values()
    return {*latencies.waits._least, *(replica for each in paces for replica in each._paces)}


def age(pool: Pool, seconds: float) -> None:
    """Make all that is there older."""
    slow_start = pool._reputation._slow_start
    slow_start._first -= seconds
    slow_start._since = {who: since - seconds for who, since in slow_start._since.items()}


async def test_replica_that_joins_answers_and_one_that_left_is_asked_no_more(connect):
    first, second = Verifier(), Verifier()
    mesh = (await connect([first])).mesh
    pool = mesh.verifiers
    await joined(pool, second)
    pool.drop(first.address)
    assert [peer.address for peer in pool.ready] == [second.address]
    assert await verified(calls_on(mesh)) == ANSWER
    assert [len(fake.requests) for fake in (first, second)] == [0, 1]
    await second.die()


async def test_call_at_a_replica_that_leaves_is_finished_there(connect):
    staying, leaving = Verifier(), Verifier()
    mesh = (await connect([leaving, staying])).mesh
    hold = leaving.always = Hold()
    call = asyncio.create_task(verified(calls_on(mesh)))
    await asyncio.wait_for(hold.reached.wait(), 10)
    (peer, _) = mesh.verifiers.peers
    mesh.verifiers.drop(leaving.address)
    assert not peer.ready
    hold.released.set()
    assert await asyncio.wait_for(call, 10) == ANSWER
    assert staying.requests == []
    async with asyncio.timeout(10):
        await asyncio.gather(*mesh.verifiers._leaving)
    assert peer.channel.get_state() is grpc.ChannelConnectivity.SHUTDOWN


async def test_last_calls_at_replicas_that_have_left_are_not_remembered(connect):
    verifier, drafter = Verifier(), Drafter()
    verifier.cost.computed_at_s = 1.0
    mesh = (await connect([verifier], [drafter])).mesh
    calls = calls_on(mesh)
    assert await verified(calls) == ANSWER
    await drafted(calls)
    assert remembered(mesh) == {verifier.address, drafter.address}
    holds = verifier.always, drafter.always = Hold(), Hold()
    running = [asyncio.create_task(each) for each in (verified(calls), drafted(calls))]
    for hold in holds:
        await asyncio.wait_for(hold.reached.wait(), 10)
    mesh.verifiers.drop(verifier.address)
    mesh.drafters.drop(drafter.address)
    for hold in holds:
        hold.released.set()
    await asyncio.wait_for(asyncio.gather(*running), 10)
    assert remembered(mesh) == set()


async def test_further_tokens_of_a_replica_that_has_left_are_not_remembered(connect, serve):
    leaving, staying = Verifier(), Verifier()
    leaving.decodes_on, leaving.cost.forward_ms, leaving.cost.computed_at_s = True, 2.0, 1.0
    behind = await connect([leaving])
    client = await serve(behind)
    asked = request(speculation={"strategy": "autoregressive"})
    await collect(client.Generate(asked))
    assert behind.mesh.latencies.further._paces.keys() == {leaving.address}
    hold = Hold()
    leaving.further_faults.append(hold)
    answer = asyncio.create_task(collect(client.Generate(asked)))
    await asyncio.wait_for(hold.reached.wait(), 10)
    await joined(behind.mesh.verifiers, staying)
    behind.mesh.verifiers.drop(leaving.address)
    hold.released.set()
    assert (await asyncio.wait_for(answer, 10)).tokens == alone(asked.sampling)
    assert leaving.address not in remembered(behind.mesh)
    await staying.die()


async def test_last_replica_that_leaves_leaves_nobody(connect):
    verifier = Verifier()
    pool = (await connect([verifier])).mesh.verifiers
    pool.drop(verifier.address)
    assert not pool.configured
    with pytest.raises(UnavailableStatus, match="none of 0"):
        pool.reserve({})


async def test_where_nobody_has_been_found_the_name_is_told():
    pool = Pool("verifier", Verifier.service, (), None, names=["dns:///v.test:5"])
    assert pool.configured
    with pytest.raises(UnavailableStatus, match=r"no verifier found at dns:///v\.test:5") as raised:
        pool.reserve({})
    assert raised.value.reason == "NO_VERIFIER"


async def test_waiting_goes_on_until_a_replica_is_found(connect):
    pool = Pool("verifier", Verifier.service, (), _anybody, names=["dns:///v.test:5"])
    waiting = asyncio.create_task(pool.wait_ready())
    verifier = Verifier()
    await verifier.start()
    await asyncio.sleep(0)
    assert not waiting.done()
    pool.add(verifier.address)
    await asyncio.wait_for(waiting, 10)
    await pool.close()
    await verifier.die()


async def test_process_that_is_found_at_two_addresses_is_one_replica(connect):
    pod, service = Verifier(), Verifier()
    pool = (await connect([pod])).mesh.verifiers
    await service.start()
    service.process_id = pod.process_id
    pool.add(service.address)
    await comes(pool, lambda: all(peer.ready for peer in pool.peers))
    assert [peer.address for peer in pool.ready] == [pod.address]
    assert pool.states()["ready"] == len(pool.replicas) == 1
    pool.drop(pod.address)
    assert [peer.address for peer in pool.ready] == [service.address]
    await service.die()


async def test_what_is_remembered_of_a_replica_goes_with_it(connect):
    verifiers = [Verifier(), Verifier(), Verifier()]
    mesh = (await connect(verifiers)).mesh
    pool = mesh.verifiers
    peer = pool.peers[0]
    fail(pool, peer)
    assert pool.states()["ejected"] == 1
    pool.drop(peer.address)
    fail(pool, peer)  # calls that run on have no say any more
    pool.add(peer.address)
    await comes(pool, lambda: len(pool.ready) == 3)
    assert pool.states() == {"ready": 3, "down": 0, "refused": 0, "ejected": 0}


@pytest.mark.parametrize(
    ("successor", "ejected"), [("pod-a", 1), ("pod-b", 0)], ids=["restarted", "replaced"]
)
async def test_restart_keeps_a_replicas_record_and_another_at_its_address_gets_a_new_one(
    connect, successor, ejected
):
    verifiers = [Verifier(), Verifier(), Verifier()]
    verifiers[0].instance = "pod-a"
    pool = (await connect(verifiers)).mesh.verifiers
    peer = pool.peers[0]
    assert peer.title == f"{peer.address} (pod-a)"
    fail(pool, peer)
    await verifiers[0].die()
    await comes(pool, lambda: not peer.ready)
    verifiers[0].instance = successor
    await verifiers[0].start()
    await comes(pool, lambda: peer.ready)
    assert pool.states()["ejected"] == ejected
    now = asyncio.get_running_loop().time()
    assert pool.outliers.due(peer.address, now) == bool(ejected)


async def test_new_process_holds_nothing_of_what_the_last_one_held(connect):
    verifier = Verifier()
    mesh = (await connect([verifier])).mesh
    peer = mesh.verifiers.peers[0]
    assert answered_by(mesh, peer.identity) == {peer.identity: 32}
    await verifier.die()
    await comes(mesh.verifiers, lambda: not peer.ready)
    await verifier.start()
    await comes(mesh.verifiers, lambda: peer.ready)
    assert peer.identity not in CommittedPrefix("next", PROMPT, mesh.holders).holds


def taken(pool: Pool, times: int) -> list[str]:
    """Who gets calls of which none ends."""
    return [pool.reserve({}).__enter__().address for _ in range(times)]


async def test_new_replica_gets_few_calls_at_first_and_its_share_later(connect):
    old, new = Verifier(), Verifier()
    pool = (await connect([old])).mesh.verifiers
    age(pool, WINDOW_SECONDS)
    await joined(pool, new)
    assert taken(pool, 9) == [old.address] * 9
    assert new.address in taken(pool, 2)
    age(pool, WINDOW_SECONDS)
    assert taken(pool, 8) == [new.address] * 8
    await new.die()


async def test_nobody_is_held_back_where_all_are_new(connect):
    pool = (await connect([Verifier(), Verifier()])).mesh.verifiers
    age(pool, WINDOW_SECONDS / 2)
    assert len({*taken(pool, 2)}) == 2


async def test_health_that_comes_and_goes_makes_nobody_new(connect):
    verifiers = [Verifier(), Verifier()]
    pool = (await connect(verifiers)).mesh.verifiers
    age(pool, WINDOW_SECONDS)
    await verifiers[0].set_health(NOT_SERVING)
    await comes(pool, lambda: len(pool.ready) == 1)
    await verifiers[0].set_health(SERVING)
    await comes(pool, lambda: len(pool.ready) == 2)
    assert len({*taken(pool, 2)}) == 2


async def test_target_moves_on_when_its_last_replica_has_left(connect):
    old, new = Verifier(), Verifier()
    behind = await connect([old])
    new.info.weights_digest = "another"
    await new.start()
    pool = behind.mesh.verifiers
    pool.add(new.address)
    await comes(pool, lambda: any(peer.refusal for peer in pool.peers))
    pool.drop(old.address)
    assert behind.targets.required().info.weights_digest == "another"
    assert [peer.address for peer in pool.ready] == [new.address]
    await new.die()


async def test_target_moves_on_to_the_model_of_most_though_another_joined_first(connect):
    old, *others = Verifier(), Verifier(), Verifier(), Verifier()
    behind = await connect([old])
    pool = behind.mesh.verifiers
    for other, digest in zip(others, ("third", "new", "new"), strict=True):
        other.info.weights_digest = digest
        await other.start()
        pool.add(other.address)
    await comes(pool, lambda: sum(bool(peer.refusal) for peer in pool.peers) == len(others))
    pool.drop(old.address)
    assert behind.targets.required().info.weights_digest == "new"
    assert [peer.address for peer in pool.ready] == [other.address for other in others[1:]]
    for other in others:
        await other.die()


async def test_drafters_join_as_verifiers_do(connect):
    mesh = (await connect([Verifier()])).mesh
    drafter = Drafter()
    await drafter.start()
    mesh.drafters.add(drafter.address)
    await comes(mesh.drafters, lambda: bool(mesh.drafters.ready))
    mesh.drafters.drop(drafter.address)
    assert mesh.drafters.kinds == []
    await drafter.die()


async def _anybody(_model):
    return None


class Mortal(Verifier):
    """Dies of the request that it gets, for good."""

    def __init__(self) -> None:
        super().__init__()
        self.died = asyncio.Event()

    async def _receive(self, request):
        self.requests.append(request)
        self.death = asyncio.create_task(self._die())
        return await asyncio.Event().wait()

    async def _die(self) -> None:
        await self.die()
        self.died.set()


async def two_lost(connect) -> tuple[Pool, asyncio.Task]:
    """A call whose two replicas have died, and are not coming back."""
    lost = [Mortal(), Mortal()]
    mesh = (await connect(lost)).mesh
    call = asyncio.create_task(verified(calls_on(mesh)))
    for fake in lost:
        await asyncio.wait_for(fake.died.wait(), 10)
    for fake in lost:
        mesh.verifiers.drop(fake.address)
    return mesh.verifiers, call


async def test_call_that_lost_its_replicas_is_answered_by_their_successor(connect):
    pool, call = await two_lost(connect)
    successor = Verifier()
    await joined(pool, successor)
    assert await asyncio.wait_for(call, 4) == ANSWER
    await successor.die()


async def test_request_that_kills_the_successor_too_kills_no_more(connect):
    pool, call = await two_lost(connect)
    successors = [Mortal(), Mortal()]
    for fake in successors:
        await joined(pool, fake)
    with pytest.raises(FailedPreconditionStatus) as raised:
        await asyncio.wait_for(call, 8)
    assert raised.value.reason == "REQUEST_BREAKS_REPLICAS"
    assert sum(bool(fake.requests) for fake in successors) == 1
    for fake in successors:
        await fake.die()
