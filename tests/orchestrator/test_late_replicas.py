"""A replica that hangs while its gRPC and its health answer holds nobody up."""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial

import grpc.aio
import pytest
from opentelemetry.context import Context
from tests.orchestrator.answers import alone, collect, request
from tests.orchestrator.conftest import draft
from tests.orchestrator.model import VOCAB_SIZE, target_only
from tests.orchestrator.peers import START, Drafter, Verifier, hang, passing

from specmesh.decoding.prefix import BLOCK_TOKENS
from specmesh.decoding.sampling import Sampling
from specmesh.decoding.trees.tree import TokenTree
from specmesh.orchestrator.replicas.calls.mesh_calls import Calls
from specmesh.orchestrator.replicas.calls.request_context import RequestContext
from specmesh.orchestrator.replicas.latencies.patience import CallPatience
from specmesh.orchestrator.replicas.pool import outliers, replica_pool
from specmesh.orchestrator.replicas.prefixes.prefix import CommittedPrefix
from specmesh.orchestrator.replicas.replica_pools import ReplicaPools
from specmesh.orchestrator.replicas.retries.hedging import HEDGES_PER_CALL, MAX_HEDGES, HedgeBudget
from specmesh.orchestrator.strategies.commands import Draft, Verify
from specmesh.serving.errors import UnavailableStatus

HEDGES = True

PROMPT = tuple(range(1, 41))
SAMPLING = Sampling(temperature=0.8, seed=5)
SAID = target_only(PROMPT, 3, SAMPLING)
VERIFY = Verify(1, (), TokenTree.chain(SAID[:2]))
ANSWER = ((1, 2), SAID[2])


def calls_on(mesh: ReplicaPools, session: str = "s", seconds: float = 30.0) -> Calls:
    deadline = asyncio.get_running_loop().time() + seconds
    prefix = CommittedPrefix(session, PROMPT)
    return Calls(RequestContext(mesh, prefix, SAMPLING, vocab_size=VOCAB_SIZE, deadline=deadline))


async def verified(calls: Calls) -> tuple[tuple[int, ...], int]:
    verdict = (
        await calls.verifications.verify(VERIFY, calls.command_context(Context(), START))
    ).verdict
    return verdict.accepted_nodes, verdict.next_token


def learn(mesh: ReplicaPools, seconds: float = 0.002, sizes: tuple[int, ...] = (1, 8, 64)) -> None:
    """As after some calls of so many tokens."""
    for peer in mesh.verifiers.peers:
        for num_tokens in sizes:
            for _ in range(20):
                mesh.latencies.verifications.add(peer.address, num_tokens, seconds)


async def test_stream_with_one_hung_and_two_healthy_replicas_goes_on(connect, serve):
    verifiers = [Verifier() for _ in range(3)]
    behind = await connect(verifiers, [Drafter()])
    stub = await serve(behind)
    await collect(stub.Generate(request()))
    for verifier in verifiers:
        verifier.requests.clear()
    verifiers[0].always = hang
    began = asyncio.get_running_loop().time()
    for _ in range(10):
        assert (await collect(stub.Generate(request()))).tokens == alone(request().sampling)
    assert asyncio.get_running_loop().time() - began < 10
    # Remembered from one request to the next: left out, but for a trial now and then.
    assert behind.mesh.verifiers.outliers.is_ejected(verifiers[0].address)
    assert len(verifiers[0].requests) <= 8


async def test_late_call_is_answered_by_another_replica_within_a_fraction_of_a_second(connect):
    verifiers = [Verifier() for _ in range(3)]
    mesh = (await connect(verifiers)).mesh
    learn(mesh)
    verifiers[0].always = hang
    began = asyncio.get_running_loop().time()
    assert await verified(calls_on(mesh)) == ANSWER
    assert asyncio.get_running_loop().time() - began < 0.5
    await asyncio.wait_for(verifiers[0].cancelled.wait(), 10)
    assert sum(peer.num_outstanding for peer in mesh.verifiers.peers) == 0


async def test_even_the_first_call_of_all_does_not_wait_long_for_a_hung_replica(connect):
    verifiers = [Verifier(), Verifier()]
    mesh = (await connect(verifiers)).mesh
    verifiers[0].always = hang
    assert await asyncio.wait_for(verified(calls_on(mesh)), 3) == ANSWER


async def test_first_answer_wins_and_the_other_call_is_cancelled(connect):
    verifiers = [Verifier(), Verifier()]
    mesh = (await connect(verifiers)).mesh
    learn(mesh)
    verifiers[0].faults.append(verifiers[1].arrived.wait)
    verifiers[1].always = hang
    assert await verified(calls_on(mesh)) == ANSWER
    await asyncio.wait_for(verifiers[1].cancelled.wait(), 10)
    assert sum(peer.num_outstanding for peer in mesh.verifiers.peers) == 0


async def test_cancelled_verification_cancels_both_calls(connect):
    verifiers = [Verifier(), Verifier()]
    mesh = (await connect(verifiers)).mesh
    learn(mesh)
    for verifier in verifiers:
        verifier.always = hang
    calls = calls_on(mesh)
    context = calls.command_context(Context(), START)
    verification = calls.verifications.begin(VERIFY, context, pytest.fail)
    await asyncio.gather(*(asyncio.wait_for(v.arrived.wait(), 10) for v in verifiers))
    verification.free()
    assert [peer.num_outstanding for peer in mesh.verifiers.peers] == [0, 0]
    verification.cancel()
    for verifier in verifiers:
        await asyncio.wait_for(verifier.cancelled.wait(), 10)
    assert [peer.num_ending for peer in mesh.verifiers.peers] == [0, 0]


async def test_second_call_that_fails_leaves_the_first_alone(connect):
    verifiers = [Verifier(), Verifier()]
    mesh = (await connect(verifiers)).mesh
    learn(mesh)
    failed = asyncio.Event()

    async def fail() -> None:
        asyncio.get_running_loop().call_later(0.05, failed.set)
        raise ZeroDivisionError

    verifiers[0].faults.append(failed.wait)
    verifiers[1].faults.append(fail)
    assert await verified(calls_on(mesh)) == ANSWER
    assert [len(verifier.requests) for verifier in verifiers] == [1, 1]


async def test_first_call_that_fails_leaves_it_to_the_second(connect):
    verifiers = [Verifier(), Verifier(), Verifier()]
    mesh = (await connect(verifiers)).mesh
    learn(mesh)
    failed = asyncio.Event()

    async def fail() -> None:
        await verifiers[1].arrived.wait()
        asyncio.get_running_loop().call_later(0.05, failed.set)
        raise ZeroDivisionError

    verifiers[0].faults.append(fail)
    verifiers[1].faults.append(failed.wait)
    assert await verified(calls_on(mesh)) == ANSWER
    assert [len(verifier.requests) for verifier in verifiers] == [1, 1, 0]


async def test_replicas_that_die_together_with_a_call_and_its_hedge_do_not_delay_it(
    connect, monkeypatch
):
    """Their connections break in the same instant, which says little about the request."""
    monkeypatch.setattr(replica_pool, "NO_PEER_SECONDS", 60.0)
    verifiers = [Verifier() for _ in range(3)]
    mesh = (await connect(verifiers)).mesh
    learn(mesh)
    dying = verifiers[:2]
    for verifier in dying:
        verifier.always = hang
    task = asyncio.create_task(verified(calls_on(mesh)))
    await asyncio.gather(*(asyncio.wait_for(v.arrived.wait(), 10) for v in dying))
    await asyncio.gather(*(verifier.die() for verifier in dying))
    assert await asyncio.wait_for(task, 10) == ANSWER


async def test_call_that_may_have_killed_a_replica_is_sent_to_one_at_a_time(connect):
    verifiers = [Verifier() for _ in range(3)]
    mesh = (await connect(verifiers)).mesh
    learn(mesh, 0.2, (len(PROMPT),))
    deaths: list[asyncio.Task[None]] = []

    async def die() -> None:
        deaths.append(asyncio.create_task(verifiers[0].die()))
        await hang()

    verifiers[0].always = die
    verifiers[1].always = partial(asyncio.sleep, 0.6)
    assert await verified(calls_on(mesh)) == ANSWER
    assert [len(verifier.requests) for verifier in verifiers] == [1, 1, 0]


async def test_there_is_one_second_call_at_most(connect):
    verifiers = [Verifier() for _ in range(3)]
    mesh = (await connect(verifiers)).mesh
    learn(mesh)
    for verifier in verifiers:
        verifier.always = hang
    task = asyncio.create_task(verified(calls_on(mesh)))
    async with asyncio.timeout(10):
        while sum(len(verifier.requests) for verifier in verifiers) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    await asyncio.sleep(0.3)  # for a third one, if it could come
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert sum(len(verifier.requests) for verifier in verifiers) == 2


async def test_second_calls_are_few_when_all_replicas_are_slow(connect):
    """Else an overload would feed itself."""
    verifiers = [Verifier(), Verifier()]
    mesh = (await connect(verifiers)).mesh
    learn(mesh)

    async def slow() -> None:
        await asyncio.sleep(0.3)

    for verifier in verifiers:
        verifier.always = slow
    for _ in range(3):
        await asyncio.gather(*(verified(calls_on(mesh, str(n))) for n in range(20)))
    num_calls = sum(len(verifier.requests) for verifier in verifiers)
    assert num_calls <= 60 + MAX_HEDGES + 60 * HEDGES_PER_CALL
    assert len(mesh.verifiers.usable()) == 2


async def test_replica_is_not_charged_if_the_hedge_is_late_as_well(connect):
    """Where all replicas are slow, chance decides which of the two answers first."""
    for hedge_s, charged in ((0.0, True), (0.6, False)):
        verifiers = [Verifier(), Verifier()]
        mesh = (await connect(verifiers)).mesh
        learn(mesh, 0.2, (len(PROMPT),))
        faults = deque([hang, partial(asyncio.sleep, hedge_s)])
        for verifier in verifiers:
            verifier.always = lambda faults=faults: faults.popleft()()
        assert await verified(calls_on(mesh)) == ANSWER
        assert not faults
        assert num_charged(mesh) == charged


async def test_hung_replica_is_charged_though_the_hedge_has_to_read_the_prompt(connect):
    verifiers = [Verifier(), Verifier()]
    mesh = (await connect(verifiers)).mesh
    learn(mesh)
    holder, other = mesh.verifiers.peers
    for _ in range(20):
        mesh.latencies.verifications.add(holder.address, 512, 0.4)
    prefix = CommittedPrefix("s", range(600))
    prefix.seen_by(holder.identity, prefix.length)
    deadline = asyncio.get_running_loop().time() + 30
    request = RequestContext(mesh, prefix, SAMPLING, vocab_size=VOCAB_SIZE, deadline=deadline)
    for verifier in verifiers:
        verifier.always = hang if verifier.address == holder.address else reads
    await verified(Calls(request))
    assert num_charged(mesh) == 1
    assert mesh.verifiers.outliers.healthy(other.address)


async def reads() -> None:
    """Read a long prompt."""
    await asyncio.sleep(0.3)


def num_charged(mesh: ReplicaPools) -> int:
    """The replicas to which a failure was charged."""
    outliers = mesh.verifiers.outliers
    return sum(not outliers.may_be_healthy(each.address, "") for each in mesh.verifiers.peers)


def test_budget_is_a_share_of_the_calls():
    budget = HedgeBudget()
    assert sum(budget.spend() for _ in range(1000)) == MAX_HEDGES
    spent = 0
    for _ in range(1000):
        budget.earn()
        spent += budget.spend()
    assert spent == pytest.approx(1000 * HEDGES_PER_CALL, abs=1)


async def test_answered_calls_earn_second_calls_for_late_ones(connect):
    verifiers = [Verifier(), Verifier()]
    mesh = (await connect(verifiers)).mesh
    # Only a second call answers in good time: the first is not given up.
    mesh.latencies.verifications = CallPatience(ceiling_s=60.0, unknown_s=60.0, floor_s=60.0)
    learn(mesh)
    while mesh.hedges.spend():
        pass
    for _ in range(round(2 / HEDGES_PER_CALL)):
        assert await verified(calls_on(mesh)) == ANSWER
    verifiers[0].always = hang
    assert await asyncio.wait_for(verified(calls_on(mesh)), 10) == ANSWER


async def test_sole_replica_that_hung_is_given_up_and_asked_again(connect):
    verifier = Verifier()
    mesh = (await connect([verifier])).mesh
    mesh.latencies.verifications = CallPatience(ceiling_s=60.0, unknown_s=60.0, floor_s=0.2)
    learn(mesh)
    verifier.faults.append(hang)
    assert await asyncio.wait_for(verified(calls_on(mesh)), 5) == ANSWER
    await asyncio.wait_for(verifier.cancelled.wait(), 10)


async def test_hung_replica_comes_back_once_it_answers_again(connect):
    verifiers = [Verifier(), Verifier()]
    mesh = (await connect(verifiers)).mesh
    learn(mesh)
    verifiers[0].always = hang
    while not mesh.verifiers.outliers.is_ejected(verifiers[0].address):
        assert await verified(calls_on(mesh)) == ANSWER
    verifiers[0].always = passing
    async with asyncio.timeout(10):
        while mesh.verifiers.outliers.is_ejected(verifiers[0].address):
            assert await verified(calls_on(mesh)) == ANSWER
            await asyncio.sleep(0.05)


async def test_hung_drafter_stalls_a_few_rounds_and_no_more(connect, serve):
    drafter = Drafter()
    behind = await connect([Verifier()], [drafter])
    stub = await serve(behind)
    await collect(stub.Generate(request()))
    drafter.always = hang
    began = asyncio.get_running_loop().time()
    assert (await collect(stub.Generate(request()))).tokens == alone(request().sampling)
    assert asyncio.get_running_loop().time() - began < 5
    assert behind.mesh.drafters.outliers.is_ejected(drafter.address)


async def test_drafter_that_hangs_holds_up_one_draft_and_hardly_the_one_that_probes_it(
    connect, monkeypatch
):
    waits: list[tuple[int, bool]] = []

    def missed_after(
        _: CallPatience, num_tokens: int, step_s: float, *, is_probe: bool = False
    ) -> float:
        assert step_s >= 0
        waits.append((num_tokens, is_probe))
        return 0.3

    drafter = Drafter()
    mesh = (await connect([Verifier()], [drafter])).mesh
    calls = calls_on(mesh)

    async def drafts() -> None:
        context = calls.command_context(Context(), START)
        await draft(calls, Draft(1, (), depth=2), context, lambda _: None)

    await drafts()
    monkeypatch.setattr(outliers, "SILENT_SECONDS", 0.2)
    monkeypatch.setattr(CallPatience, "missed_after", missed_after)
    drafter.always = hang
    with pytest.raises(grpc.aio.AioRpcError):
        await drafts()
    with pytest.raises(UnavailableStatus):
        await drafts()
    mesh.drafters.outliers.restarted(drafter.address, asyncio.get_running_loop().time())
    with pytest.raises(grpc.aio.AioRpcError):
        await drafts()
    (sent, was_probe), (_, is_probe) = waits
    assert (was_probe, is_probe) == (False, True)
    assert sent < len(PROMPT) - BLOCK_TOKENS  # the drafter holds the blocks before
