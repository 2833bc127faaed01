"""Calls reach a replica that answers, or fail in bounded time."""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import replace

import grpc
import grpc.aio
import pytest
from opentelemetry.context import Context
from tests.orchestrator.conftest import draft, until
from tests.orchestrator.model import VOCAB_SIZE, target_only
from tests.orchestrator.peers import (
    NOT_SERVING,
    SERVING,
    START,
    Drafter,
    Hold,
    Verifier,
    hang,
    raising,
)

from specmesh.decoding.drafting import TopK
from specmesh.decoding.predict.lookahead import DraftStop
from specmesh.decoding.predict.platt import Platt
from specmesh.decoding.sampling import AcceptanceMode, Sampling
from specmesh.decoding.trees.tree import TokenTree
from specmesh.mesh.v1alpha1 import drafter_pb2
from specmesh.orchestrator.replicas.calls.command_context import CommandContext
from specmesh.orchestrator.replicas.calls.draft import draft_call
from specmesh.orchestrator.replicas.calls.mesh_calls import Calls
from specmesh.orchestrator.replicas.calls.request_context import RequestContext
from specmesh.orchestrator.replicas.latencies import mesh_latencies
from specmesh.orchestrator.replicas.prefixes.prefix import CommittedPrefix
from specmesh.orchestrator.replicas.replica_pools import ReplicaPools
from specmesh.orchestrator.replicas.retries import attempts as attempts_module
from specmesh.orchestrator.strategies.commands import Draft, Verify
from specmesh.orchestrator.strategies.events import Drafted
from specmesh.serving.errors import (
    DeadlineExceededStatus,
    FailedPreconditionStatus,
    ResourceExhaustedStatus,
    UnavailableStatus,
)

PROMPT = tuple(range(1, 41))
SAMPLING = Sampling(temperature=0.8, seed=5)
EXPECTED = target_only(PROMPT, 3, SAMPLING)
VERIFY = Verify(1, (), TokenTree.chain(EXPECTED[:2]))
DRAFT = Draft(1, (), depth=4, levels_per_message=2)
AWAY = UnavailableStatus("DRAINING", "going")


def calls_on(
    mesh: ReplicaPools, seconds: float = 10.0, sampling: Sampling = SAMPLING, epoch: int = 1
) -> Calls:
    prefix = CommittedPrefix("s", PROMPT, mesh.holders)
    deadline = asyncio.get_running_loop().time() + seconds
    return Calls(
        RequestContext(
            mesh, prefix, sampling, vocab_size=VOCAB_SIZE, deadline=deadline, epoch=epoch
        )
    )


async def verified(
    calls: Calls, context: CommandContext | None = None
) -> tuple[tuple[int, ...], int]:
    verified = await calls.verifications.verify(
        VERIFY, context or calls.command_context(Context(), START)
    )
    verdict = verified.verdict
    return verdict.accepted_nodes, verdict.next_token


async def drafted(
    calls: Calls,
    parts: list[Drafted] | None = None,
    command: Draft = DRAFT,
    context: CommandContext | None = None,
) -> list[Drafted]:
    """The parts of a draft; ``parts`` keeps them if it breaks."""
    parts = [] if parts is None else parts
    context = context or calls.command_context(Context(), START)
    await draft(calls, command, context, parts.append)
    return parts


ANSWER = ((1, 2), EXPECTED[2])


async def test_unavailable_replica_is_passed_over(connect):
    verifiers = [Verifier(), Verifier()]
    calls = calls_on((await connect(verifiers)).mesh)
    verifiers[0].faults.extend(raising(AWAY))
    assert await verified(calls) == ANSWER
    assert [len(verifier.requests) for verifier in verifiers] == [1, 1]


async def test_only_replica_is_tried_again_until_it_recovers(connect):
    verifier = Verifier()
    calls = calls_on((await connect([verifier])).mesh)
    verifier.faults.extend(raising(AWAY, AWAY))
    assert await verified(calls) == ANSWER


async def test_replica_that_never_recovers_fails_the_call(connect, monkeypatch):
    monkeypatch.setattr(attempts_module, "PAUSE_SECONDS", 0.001)
    verifier = Verifier()
    calls = calls_on((await connect([verifier])).mesh)
    verifier.faults.extend(raising(*[AWAY] * 20))
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await verified(calls)
    assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
    assert len(verifier.requests) == attempts_module.MAX_ATTEMPTS


async def test_busy_replica_is_asked_again_when_it_said(connect):
    verifier = Verifier()
    calls = calls_on((await connect([verifier])).mesh)
    verifier.faults.extend(
        raising(ResourceExhaustedStatus("QUEUE_FULL", "full", retry_after_s=0.2))
    )
    began = time.monotonic()
    assert await verified(calls) == ANSWER
    assert time.monotonic() - began >= 0.2


async def test_busy_replica_yields_to_one_that_is_not(connect):
    verifiers = [Verifier(), Verifier()]
    calls = calls_on((await connect(verifiers)).mesh)
    full = ResourceExhaustedStatus("QUEUE_FULL", "full", retry_after_s=0.01)
    verifiers[0].faults.extend(raising(*[full] * 20))
    assert await verified(calls) == ANSWER
    assert [len(verifier.requests) for verifier in verifiers] == [1, 1]


FULL = ResourceExhaustedStatus("QUEUE_FULL", "full", retry_after_s=0.01)


async def test_full_replica_gets_no_further_calls_until_it_said(connect):
    verifiers = [Verifier(), Verifier()]
    mesh = (await connect(verifiers)).mesh
    full = ResourceExhaustedStatus("QUEUE_FULL", "full", retry_after_s=30)
    verifiers[0].faults.extend(raising(full))
    with mesh.verifiers.reserve({}, avoid={verifiers[0].address}):  # the other has more to do
        for _ in range(5):
            assert await verified(calls_on(mesh)) == ANSWER
    assert [len(verifier.requests) for verifier in verifiers] == [1, 5]


@pytest.mark.parametrize(("num_full", "shrinks"), [(1, False), (2, True)])
async def test_room_shrinks_only_where_no_replica_takes_the_call(connect, num_full, shrinks):
    verifiers = [Verifier(), Verifier()]
    mesh = (await connect(verifiers)).mesh
    room, now = mesh.admission.room, asyncio.get_running_loop().time
    before = room.size(2, now())
    for verifier in verifiers[:num_full]:
        verifier.faults.extend(raising(FULL))
    assert await verified(calls_on(mesh)) == ANSWER
    assert (room.size(2, now()) < before) is shrinks


async def test_replica_is_not_busy_with_a_call_that_waits_to_be_sent_again(connect):
    verifier = Verifier()
    mesh = (await connect([verifier])).mesh
    (peer,) = mesh.verifiers.peers
    full = ResourceExhaustedStatus("QUEUE_FULL", "full", retry_after_s=30)
    verifier.faults.extend(raising(full))
    call = asyncio.create_task(verified(calls_on(mesh, seconds=60)))
    await asyncio.wait_for(verifier.arrived.wait(), 10)
    async with asyncio.timeout(10):
        while peer.num_outstanding:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.001)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)


async def test_forgotten_prefix_is_sent_again_whole(connect):
    verifier = Verifier()
    calls = calls_on((await connect([verifier])).mesh)
    assert await verified(calls) == ANSWER
    verifier.forget()
    assert await verified(calls) == ANSWER
    assert [request.prefix.base_length for request in verifier.requests] == [0, 32, 0]


async def test_calls_stay_with_the_replica_that_answered_after_another_has_failed(connect):
    verifiers = [Verifier(), Verifier()]
    calls = calls_on((await connect(verifiers)).mesh)
    assert await verified(calls) == ANSWER
    verifiers[0].faults.extend(raising(AWAY))
    for _ in range(3):
        assert await verified(calls) == ANSWER
    assert [len(verifier.requests) for verifier in verifiers] == [2, 3]


UNKNOWN = FailedPreconditionStatus("PREFIX_UNKNOWN", "never seen")


@pytest.mark.parametrize("fault", [UNKNOWN, AWAY, ValueError("a bug")])
async def test_a_call_that_fails_says_nothing_of_the_other_prefixes_a_replica_holds(connect, fault):
    verifier = Verifier()
    mesh = (await connect([verifier])).mesh
    others = [tuple(range(first, first + 40)) for first in range(100, 200)]
    for other in others:
        believed = CommittedPrefix("t", other, mesh.holders)
        believed.seen_by(mesh.verifiers.peers[0].identity, 40)
        believed.close()
    verifier.faults.extend(raising(fault))
    assert await verified(calls_on(mesh)) == ANSWER
    assert all(CommittedPrefix("u", other, mesh.holders).holds for other in others)


async def test_a_process_that_is_gone_is_believed_to_hold_nothing(connect):
    verifiers = [Verifier(), Verifier()]
    mesh = (await connect(verifiers)).mesh
    identities = [peer.identity for peer in mesh.verifiers.peers]
    believed = CommittedPrefix("t", PROMPT, mesh.holders)
    for identity in identities:
        believed.seen_by(identity, 40)
    believed.close()
    peer = mesh.verifiers.peers[0]
    await verifiers[0].die()
    await until(lambda: not peer.ready, peer)
    await verifiers[0].start()
    await until(lambda: peer.ready, peer)
    assert set(CommittedPrefix("u", PROMPT, mesh.holders).holds) == {identities[1]}


async def test_calls_of_a_request_wait_for_who_holds_its_prefix_unless_one_is_there_already(
    connect, monkeypatch
):
    verifiers = [Verifier(), Verifier()]
    mesh = (await connect(verifiers)).mesh
    monkeypatch.setattr(mesh.latencies.verifications, "late_after", lambda _: math.inf)
    mesh.latencies.prefill.add(0, 0.01)
    mesh.latencies.prefill.add(1000, 10.0)  # to read a token takes as long as a call
    calls = calls_on(mesh)
    await verified(calls)
    with mesh.verifiers.reserve({}) as busy:  # with the call of another request
        assert busy.address == verifiers[0].address
        await verified(calls)
        assert [len(each.requests) for each in verifiers] == [2, 0]
    hold = Hold()
    verifiers[0].faults.append(hold)
    first = asyncio.create_task(verified(calls))
    await asyncio.wait_for(hold.reached.wait(), 10)
    await verified(calls)
    assert [len(each.requests) for each in verifiers] == [3, 1]
    hold.released.set()
    await first


async def test_deadline_of_the_request_ends_a_call_that_hangs(connect):
    verifiers = [Verifier(), Verifier()]
    for verifier in verifiers:
        verifier.always = hang
    calls = calls_on((await connect(verifiers)).mesh, seconds=0.3)
    began = time.monotonic()
    with pytest.raises(DeadlineExceededStatus):
        await verified(calls)
    assert 0.25 < time.monotonic() - began < 5


async def test_tokens_are_in_flight_until_their_verdict(connect):
    hold, verifier = Hold(), Verifier()
    verifier.faults.append(hold)
    mesh = (await connect([verifier])).mesh
    admission = mesh.admission
    call = asyncio.create_task(verified(calls_on(mesh)))
    await asyncio.wait_for(hold.reached.wait(), 10)
    assert admission.num_tokens_in_flight == 3
    hold.released.set()
    assert await call == ANSWER
    assert admission.num_tokens_in_flight == 0


async def test_admission_learns_how_many_calls_share_a_forward_and_how_many_should(
    connect, monkeypatch
):
    verifier = Verifier()
    verifier.cost.num_batch_calls, verifier.cost.num_worthwhile_calls = 12, 20
    mesh = (await connect([verifier])).mesh
    seen = []
    monkeypatch.setattr(mesh.admission, "verified", lambda *known: seen.append(known))
    await verified(calls_on(mesh))
    ((num_replicas, spent, _, times),) = seen
    assert (num_replicas, spent.num_calls, spent.num_worthwhile_calls, times) == (1, 12, 20, 1)


async def test_pause_beyond_the_deadline_is_not_waited_for(connect):
    verifier = Verifier()
    calls = calls_on((await connect([verifier])).mesh, seconds=20)
    full = ResourceExhaustedStatus("QUEUE_FULL", "full", retry_after_s=100)
    verifier.faults.extend(raising(full))
    began = time.monotonic()
    with pytest.raises(grpc.aio.AioRpcError, match="full"):
        await verified(calls)
    assert time.monotonic() - began < 10


async def test_deadline_bounds_the_wait_for_a_replica(connect):
    verifier = Verifier()
    mesh = (await connect([verifier])).mesh
    await verifier.set_health(NOT_SERVING)
    await until(lambda: not mesh.verifiers.ready, *mesh.verifiers.peers)
    with pytest.raises(UnavailableStatus) as raised:
        await asyncio.wait_for(verified(calls_on(mesh, seconds=0.1)), 4)
    assert raised.value.reason == "NO_VERIFIER"


async def test_call_waits_for_a_replica_to_come_back(connect):
    verifier = Verifier()
    mesh = (await connect([verifier])).mesh
    await verifier.set_health(NOT_SERVING)
    await until(lambda: not mesh.verifiers.ready, *mesh.verifiers.peers)
    call = asyncio.create_task(verified(calls_on(mesh)))
    await verifier.set_health(SERVING)
    assert await call == ANSWER


@pytest.mark.parametrize("num_turns", range(4))
async def test_a_call_cancelled_as_its_replica_comes_back_is_over(connect, num_turns):
    verifier = Verifier()
    mesh = (await connect([verifier])).mesh
    await verifier.set_health(NOT_SERVING)
    await until(lambda: not mesh.verifiers.ready, *mesh.verifiers.peers)
    calls, cancelled = calls_on(mesh), asyncio.Event()
    context = calls.command_context(Context(), START)
    call = calls.verifications.begin(VERIFY, context, pytest.fail)
    await asyncio.sleep(0.01)

    def cancel(num_turns: int) -> None:
        if num_turns:
            asyncio.get_running_loop().call_soon(cancel, num_turns - 1)
            return
        call.cancel()
        cancelled.set()

    with mesh.verifiers.watched(lambda: cancel(num_turns)):
        await verifier.set_health(SERVING)
        await asyncio.wait_for(cancelled.wait(), 10)
    await asyncio.sleep(0.05)
    assert not mesh.alarm._waiting
    (peer,) = mesh.verifiers.peers
    assert (peer.num_outstanding, peer.num_ending) == (0, 0)
    assert mesh.admission.num_tokens_in_flight == 0


async def test_an_answer_to_one_who_is_being_cancelled_is_dropped(connect, monkeypatch):
    calls = calls_on((await connect([Verifier()])).mesh)
    begin, told = calls.verifications.begin, []
    monkeypatch.setattr(
        calls.verifications, "begin", lambda *about: told.append(about[2]) or begin(*about)
    )
    task = asyncio.create_task(verified(calls))
    await asyncio.sleep(0)
    task.cancel()
    told[0](ValueError("too late"))
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_replica_that_dies_within_a_call_does_no_harm(connect):
    verifiers = [Verifier(), Verifier()]
    calls = calls_on((await connect(verifiers)).mesh)
    verifiers[0].always = hang
    call = asyncio.create_task(verified(calls))
    await asyncio.wait_for(verifiers[0].arrived.wait(), 10)
    await verifiers[0].die()
    assert await call == ANSWER


async def test_calls_at_once_spread_over_the_replicas(connect):
    verifiers = [Verifier(), Verifier(), Verifier()]
    mesh = (await connect(verifiers)).mesh
    for verifier in verifiers:
        verifier.always = hang
    running = [asyncio.create_task(verified(calls_on(mesh))) for _ in verifiers]
    await asyncio.gather(*(asyncio.wait_for(v.arrived.wait(), 10) for v in verifiers))
    for call in running:
        call.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    for verifier in verifiers:
        await asyncio.wait_for(verifier.cancelled.wait(), 10)


async def test_draft_comes_level_by_level(connect):
    parts = await drafted(calls_on((await connect([Verifier()], [Drafter(agreement=1)])).mesh))
    assert [token for part in parts for token in part.token_ids][:3] == EXPECTED
    assert [part.parents for part in parts] == [(0, 1), (2, 3)]
    assert [part.last for part in parts] == [False, True]


async def test_draft_carries_where_to_stop(connect):
    drafter = Drafter()
    calls = calls_on((await connect([Verifier()], [drafter])).mesh)
    await drafted(calls)
    await drafted(calls, command=replace(DRAFT, stop=DraftStop(0.5, Platt(2.0, -1.0))))
    plain, stopped = drafter.requests
    assert not plain.HasField("stop")
    assert (stopped.stop.below, stopped.stop.slope, stopped.stop.bias) == (0.5, 2.0, -1.0)


@pytest.mark.parametrize(("levels", "sizes"), [(0, [0]), (2, [2, 0]), (3, [2, 1])])
async def test_draft_that_ends_early_says_so(connect, levels, sizes):
    drafter = Drafter()
    drafter.max_levels = levels
    parts = await drafted(calls_on((await connect([Verifier()], [drafter])).mesh))
    assert [len(part.token_ids) for part in parts] == sizes
    assert [part.last for part in parts] == [*[False] * (len(parts) - 1), True]


async def test_draft_that_broke_before_its_first_level_is_sent_elsewhere(connect):
    drafters = [Drafter(), Drafter()]
    drafters[0].faults.extend(raising(AWAY))
    parts = await drafted(calls_on((await connect([Verifier()], drafters)).mesh))
    assert sum(len(part.token_ids) for part in parts) == 4
    assert [len(drafter.requests) for drafter in drafters] == [1, 1]


async def test_draft_that_broke_later_is_not_repeated(connect):
    drafters = [Drafter(), Drafter()]
    (drafters[0].after_message,) = raising(AWAY)
    calls = calls_on((await connect([Verifier()], drafters)).mesh)
    parts: list[Drafted] = []
    with pytest.raises(grpc.aio.AioRpcError):
        await drafted(calls, parts)
    assert [len(part.token_ids) for part in parts] == [2]
    assert drafters[1].requests == []


async def test_frozen_drafter_fails_the_draft_at_its_cap(connect, monkeypatch):
    monkeypatch.setattr(draft_call, "DRAFT_SECONDS", 0.2)
    # Neither the message that is late nor the request's deadline ends the draft.
    monkeypatch.setattr(mesh_latencies, "UNKNOWN_DRAFT_SECONDS", 60.0)
    drafter = Drafter()
    drafter.always = hang
    calls = calls_on((await connect([Verifier()], [drafter])).mesh, seconds=60)
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await asyncio.wait_for(drafted(calls), 10)
    assert raised.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert len(drafter.requests) == 1  # a guess is not worth a second wait


async def test_without_a_drafter_the_draft_fails_at_once(connect):
    with pytest.raises(UnavailableStatus) as raised:
        await drafted(calls_on((await connect([Verifier()])).mesh))
    assert raised.value.reason == "NO_DRAFTER"


async def test_draft_goes_to_the_model_that_it_names(connect):
    drafters = [Drafter("small"), Drafter("tiny"), Drafter("small")]
    calls = calls_on((await connect([Verifier()], drafters)).mesh)
    await drafted(calls, command=replace(DRAFT, drafter=1))
    assert [len(drafter.requests) for drafter in drafters] == [0, 1, 0]
    await asyncio.gather(drafted(calls), drafted(calls))
    assert [len(drafter.requests) for drafter in drafters] == [1, 1, 1]


async def test_draft_of_a_model_that_has_gone_is_anybodys(connect):
    drafter = Drafter()
    calls = calls_on((await connect([Verifier()], [drafter])).mesh)
    await drafted(calls, command=replace(DRAFT, drafter=1))
    assert len(drafter.requests) == 1


async def test_draft_grows_below_the_nodes_named(connect):
    drafter = Drafter(agreement=1)
    calls = calls_on((await connect([Verifier()], [drafter])).mesh)
    tree = TokenTree((EXPECTED[0], 7, EXPECTED[1]), (0, 0, 1))
    command = Draft(1, (), 1, tree=tree, from_nodes=(3, 2))
    (part,) = await drafted(calls, command=command)
    below_wrong = target_only((*PROMPT, 7), 1, SAMPLING)
    assert part.token_ids == (EXPECTED[2], *below_wrong)
    assert part.parents == (3, 2)


async def test_choices_come_with_the_node_they_follow(connect):
    calls = calls_on((await connect([Verifier()], [Drafter(agreement=1)])).mesh)
    command = Draft(1, (), 2, levels_per_message=2, num_choices=3)
    (part,) = await drafted(calls, command=command)
    assert list(part.choices) == [0, 1]
    for node, token in enumerate(part.token_ids):
        chosen = part.choices[node]
        assert isinstance(chosen, TopK)
        assert chosen.token_ids[0] == token
        assert len(chosen.token_ids) == len(chosen.probabilities) == 3
        assert chosen.token_ids.index(token) == 0
        assert 0 < chosen.entropy < math.log(VOCAB_SIZE)


async def test_drafter_that_tells_no_entropies_is_taken_for_as_unsure_as_can_be(connect):
    drafter = Drafter(agreement=1)
    calls = calls_on((await connect([Verifier()], [drafter])).mesh)
    command = Draft(1, (), 2, levels_per_message=2, num_choices=3)
    (telling,) = await drafted(calls, command=command)
    drafter.corrupt = lambda message: message.ClearField("entropies")
    (silent,) = await drafted(calls, command=command)
    for node, chosen in telling.choices.items():
        assert chosen.entropy < silent.choices[node].entropy < math.log(VOCAB_SIZE)


async def test_in_rejection_mode_every_draft_has_noise_of_its_own(connect):
    verifier, drafter = Verifier(), Drafter()
    mesh = (await connect([verifier], [drafter])).mesh
    sampling = Sampling(seed=2**64 - 1, mode=AcceptanceMode.REJECTION)
    calls = calls_on(mesh, sampling=sampling)
    drafts = [(await drafted(calls, command=replace(DRAFT, task=task))) for task in (1, 2, 2)]
    seeds = [request.sampling.seed for request in drafter.requests]
    assert len({*seeds, sampling.seed}) == 3
    assert seeds[1] == seeds[2]
    # The target's noise is the request's: any replica, at any time, says the same.
    tokens = [token for part in drafts[0] for token in part.token_ids]
    laws = {node: law for part in drafts[0] for node, law in part.distributions.items()}
    command = Verify(9, (), TokenTree.chain(tokens), laws)
    await calls.verifications.verify(command, calls.command_context(Context(), START))
    assert verifier.requests[0].sampling.seed == sampling.seed


async def test_in_coupled_mode_every_draft_shares_the_targets_noise(connect):
    drafter = Drafter()
    calls = calls_on((await connect([Verifier()], [drafter])).mesh)
    for task in (1, 2):
        await drafted(calls, command=replace(DRAFT, task=task))
    assert [request.sampling.seed for request in drafter.requests] == [SAMPLING.seed] * 2


async def test_freed_draft_stops_at_the_drafter_before_it_is_cancelled(connect):
    drafter, at_work = Drafter(), Hold()
    drafter.after_message = at_work
    mesh = (await connect([Verifier()], [drafter])).mesh
    calls, parts = calls_on(mesh), []
    context = calls.command_context(Context(), START)
    drafting = calls.drafts.begin(DRAFT, context, parts.append, pytest.fail)
    await at_work.reached.wait()
    drafting.free()
    (peer,) = mesh.drafters.peers
    assert (peer.num_outstanding, peer.num_ending) == (0, 1)
    await asyncio.wait_for(drafter.cancelled.wait(), 10)
    drafting.cancel()
    assert (peer.num_outstanding, peer.num_ending) == (0, 0)


async def test_cancelling_a_draft_that_is_over_leaves_the_next_one_alone(connect):
    drafter = Drafter()
    mesh = (await connect([Verifier()], [drafter])).mesh
    calls, whole, over = calls_on(mesh), [], asyncio.Event()
    context = calls.command_context(Context(), START)
    drafting = calls.drafts.begin(DRAFT, context, whole.append, lambda error: over.set())
    await over.wait()
    peer = mesh.drafters.peers[0]
    hold = Hold()
    drafter.faults.append(hold)
    following = asyncio.create_task(drafted(calls, command=replace(DRAFT, task=2)))
    await hold.reached.wait()
    drafting.free()
    drafting.cancel()
    assert (peer.num_outstanding, peer.num_ending) == (1, 0)
    hold.released.set()
    assert [part.token_ids for part in await following] == [part.token_ids for part in whole]
    assert (peer.num_outstanding, drafter.num_open_calls) == (0, 2)


async def test_calls_that_are_over_hold_no_slots_however_they_ended(connect):
    verifier, drafter = Verifier(), Drafter()
    mesh = (await connect([verifier], [drafter])).mesh
    calls = calls_on(mesh)
    await verified(calls)
    await drafted(calls)
    drafter.corrupt = outside_the_vocabulary
    with pytest.raises(grpc.aio.AioRpcError):
        await drafted(calls)
    peers = (*mesh.verifiers.peers, *mesh.drafters.peers)
    assert [(peer.num_outstanding, peer.num_ending) for peer in peers] == [(0, 0)] * 2


def outside_the_vocabulary(message: drafter_pb2.DraftResponse) -> None:
    message.token_ids[0] = VOCAB_SIZE


def from_nowhere(message: drafter_pb2.DraftResponse) -> None:
    message.parents[0] = 99


def chosen_twice(message: drafter_pb2.DraftResponse) -> None:
    message.choices.add(node=0, token_ids=[1, 1], probabilities=[0.5, 0.5])


def ever_likelier(message: drafter_pb2.DraftResponse) -> None:
    message.choices.add(node=0, token_ids=[1, 2], probabilities=[0.2, 0.5])


def of_nothing_in_particular(message: drafter_pb2.DraftResponse) -> None:
    message.entropies.append(1.0)


@pytest.mark.parametrize(
    "corrupt",
    [
        outside_the_vocabulary,
        from_nowhere,
        chosen_twice,
        ever_likelier,
        of_nothing_in_particular,
    ],
)
async def test_draft_that_makes_no_sense_ends_as_a_bad_draft(connect, corrupt):
    drafter = Drafter()
    drafter.corrupt = corrupt
    calls = calls_on((await connect([Verifier()], [drafter])).mesh)
    parts: list[Drafted] = []
    with pytest.raises(grpc.aio.AioRpcError, match="bad draft"):
        await drafted(calls, parts)
    assert parts == []


REJECTION = Sampling(seed=3, mode=AcceptanceMode.REJECTION)


def drawn_from_nothing(message: drafter_pb2.DraftResponse) -> None:
    message.draft_distributions.add(node=0)


def drawn_from_nobody_knows_what(message: drafter_pb2.DraftResponse) -> None:
    message.ClearField("draft_distributions")


def drawn_from_beyond_the_vocabulary(message: drafter_pb2.DraftResponse) -> None:
    message.draft_distributions[0].token_ids[-1] = VOCAB_SIZE


def not_to_be_drawn(message: drafter_pb2.DraftResponse) -> None:
    drawn_from = message.draft_distributions[0]
    place = list(drawn_from.token_ids).index(message.token_ids[0])
    del drawn_from.token_ids[place], drawn_from.probabilities[place]


@pytest.mark.parametrize(
    "corrupt",
    [
        drawn_from_nothing,
        drawn_from_nobody_knows_what,
        drawn_from_beyond_the_vocabulary,
        not_to_be_drawn,
    ],
)
async def test_draft_that_was_not_drawn_from_what_it_says_ends_as_a_bad_draft(connect, corrupt):
    drafter = Drafter()
    drafter.corrupt = corrupt
    calls = calls_on((await connect([Verifier()], [drafter])).mesh, sampling=REJECTION)
    parts: list[Drafted] = []
    with pytest.raises(grpc.aio.AioRpcError, match="bad draft"):
        await drafted(calls, parts)
    assert parts == []


async def test_after_a_resumption_drafts_have_noise_of_their_own_again(connect):
    drafter = Drafter()
    mesh = (await connect([Verifier()], [drafter])).mesh
    for epoch in (1, 2):
        await drafted(calls_on(mesh, sampling=REJECTION, epoch=epoch))
    assert len({request.sampling.seed for request in drafter.requests}) == 2


@pytest.mark.parametrize(
    ("sampling", "drafting_on", "told"),
    [(REJECTION, True, True), (REJECTION, False, False), (SAMPLING, True, False)],
)
async def test_bonus_distribution_comes_if_a_draft_token_may_meet_it(
    connect, sampling, drafting_on, told
):
    calls = calls_on((await connect([Verifier()])).mesh, sampling=sampling)
    command = Verify(1, (), TokenTree.chain(()), drafting_on=drafting_on)
    verdict = (
        await calls.verifications.verify(command, calls.command_context(Context(), START))
    ).verdict
    assert (verdict.bonus is not None) is told
    if verdict.bonus is not None:
        assert verdict.bonus.position == len(PROMPT)
        assert verdict.bonus.meet([]) == verdict.next_token
