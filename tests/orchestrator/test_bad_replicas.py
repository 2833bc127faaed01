"""One bad replica costs no answer, and one bad request costs no pool."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import grpc
import grpc.aio
import pytest
from opentelemetry.context import Context
from tests.orchestrator.answers import PROMPT_IDS, alone, collect, refusal, request
from tests.orchestrator.conftest import draft, until
from tests.orchestrator.model import VOCAB_SIZE, features_but, target_only
from tests.orchestrator.peers import START, Drafter, Filter, Verifier, hang, passing, raising

from specmesh.decoding.errors import InvalidField
from specmesh.decoding.sampling import AcceptanceMode, Sampling
from specmesh.decoding.trees.tree import EMPTY, TokenTree
from specmesh.mesh.v1alpha1 import verifier_pb2
from specmesh.orchestrator.replicas.calls.mesh_calls import Calls
from specmesh.orchestrator.replicas.calls.request_context import RequestContext
from specmesh.orchestrator.replicas.pool import replica_pool
from specmesh.orchestrator.replicas.prefixes.prefix import CommittedPrefix
from specmesh.orchestrator.replicas.replica_pools import ReplicaPools
from specmesh.orchestrator.replicas.retries.attempts import MAX_ATTEMPTS
from specmesh.orchestrator.strategies.commands import Draft, Verify
from specmesh.orchestrator.strategies.events import Drafted
from specmesh.serving.errors import (
    FailedPreconditionStatus,
    ResourceExhaustedStatus,
    ServiceError,
    UnavailableStatus,
)
from specmesh.v1 import model_pb2

PROMPT = tuple(range(1, 41))
SAMPLING = Sampling(temperature=0.8, seed=5)
SAID = target_only(PROMPT, 3, SAMPLING)
RANDOM = Sampling(seed=3, mode=AcceptanceMode.REJECTION)
DRAFT = Draft(1, (), depth=4, levels_per_message=2)


def calls_on(mesh: ReplicaPools, session: str = "s", sampling: Sampling = SAMPLING) -> Calls:
    deadline = asyncio.get_running_loop().time() + 10
    prefix = CommittedPrefix(session, PROMPT)
    return Calls(RequestContext(mesh, prefix, sampling, vocab_size=VOCAB_SIZE, deadline=deadline))


async def verified(calls: Calls, draft: tuple[int, ...] = (*SAID[:2],)) -> tuple[int, int]:
    """How many tokens stand, and the one after them."""
    command = Verify(1, (), TokenTree.chain(draft))
    verdict = (
        await calls.verifications.verify(command, calls.command_context(Context(), START))
    ).verdict
    return len(verdict.accepted_nodes), verdict.next_token


async def drafted(calls: Calls) -> int:
    parts: list[Drafted] = []
    await draft(calls, DRAFT, calls.command_context(Context(), START), parts.append)
    return sum(len(part.token_ids) for part in parts)


class Told(ServiceError):
    """A status that no service of ours has."""

    def __init__(self, code: grpc.StatusCode) -> None:
        super().__init__("WHATEVER", "whatever")
        self.code = code  # type: ignore[misc]


NOT_THE_REQUESTS_FAULT = [
    ZeroDivisionError(),
    Told(grpc.StatusCode.UNKNOWN),
    Told(grpc.StatusCode.DATA_LOSS),
    Told(grpc.StatusCode.CANCELLED),
    Told(grpc.StatusCode.ABORTED),
    Told(grpc.StatusCode.UNIMPLEMENTED),
    FailedPreconditionStatus("OTHER", "no"),
    InvalidField("tree", "only this replica thinks so"),
    ResourceExhaustedStatus("QUEUE_FULL", "full", retry_after_s=3600),
    FailedPreconditionStatus("PREFIX_UNKNOWN", "whatever you send"),
]


@pytest.mark.parametrize("error", NOT_THE_REQUESTS_FAULT, ids=repr)
async def test_what_fails_at_one_replica_is_asked_of_another(connect, error):
    bad, good = Verifier(), Verifier()
    (bad.always,) = raising(error)
    mesh = (await connect([bad, good])).mesh
    assert await asyncio.wait_for(verified(calls_on(mesh)), 5) == (2, SAID[2])
    assert bad.requests
    assert len(good.requests) == 1


class Undetailed(Verifier):
    """Breaks with a status of gRPC's own making, as proxies and other languages do."""

    def __init__(self):
        super().__init__(features=features_but(model_pb2.MODEL_FEATURE_MANY_REQUESTS))

    async def VerifyEach(self, request_iterator, context):  # noqa: N802
        async for message in request_iterator:
            self.requests.append(message.request)
            await context.abort(grpc.StatusCode.UNKNOWN, "")
        yield  # never


async def test_unknown_without_details_is_asked_of_another(connect):
    bad, good = Undetailed(), Verifier()
    assert await verified(calls_on((await connect([bad, good])).mesh)) == (2, SAID[2])
    assert (len(bad.requests), len(good.requests)) == (1, 1)


Corrupt = Callable[[verifier_pb2.VerifyResponse], None]


def node_that_is_not_there(message: verifier_pb2.VerifyResponse) -> None:
    message.accepted_nodes[:] = [1, 2, 3]


def root_as_a_node(message: verifier_pb2.VerifyResponse) -> None:
    message.accepted_nodes[:] = [0, 1, 2]


def path_with_a_gap(message: verifier_pb2.VerifyResponse) -> None:
    message.accepted_nodes[:] = [2]


def path_upside_down(message: verifier_pb2.VerifyResponse) -> None:
    message.accepted_nodes[:] = [2, 1]


def node_twice(message: verifier_pb2.VerifyResponse) -> None:
    message.accepted_nodes[:] = [1, 1, 2]


def token_outside_the_vocabulary(message: verifier_pb2.VerifyResponse) -> None:
    message.next_token_id = VOCAB_SIZE


def no_kind(message: verifier_pb2.VerifyResponse) -> None:
    message.next_token_kind = verifier_pb2.NEXT_TOKEN_KIND_UNSPECIFIED


def recovered_after_a_leaf(message: verifier_pb2.VerifyResponse) -> None:
    message.next_token_kind = verifier_pb2.NEXT_TOKEN_KIND_RECOVERED


def bonus_before_a_leaf(message: verifier_pb2.VerifyResponse) -> None:
    message.accepted_nodes[:] = [1]


def rejected_and_said(message: verifier_pb2.VerifyResponse) -> None:
    message.accepted_nodes[:] = [1]
    message.next_token_kind = verifier_pb2.NEXT_TOKEN_KIND_RECOVERED
    message.next_token_id = SAID[1]


def bonus_that_nobody_asked_for(message: verifier_pb2.VerifyResponse) -> None:
    message.bonus.token_ids[:] = [message.next_token_id]
    message.bonus.probabilities[:] = [1.0]


@pytest.mark.parametrize(
    "corrupt",
    [
        node_that_is_not_there,
        root_as_a_node,
        path_with_a_gap,
        path_upside_down,
        node_twice,
        token_outside_the_vocabulary,
        no_kind,
        recovered_after_a_leaf,
        bonus_before_a_leaf,
        rejected_and_said,
        bonus_that_nobody_asked_for,
    ],
)
async def test_verdict_that_makes_no_sense_is_asked_of_another_replica(connect, corrupt: Corrupt):
    bad, good = Verifier(), Verifier()
    bad.corrupt = corrupt
    assert await verified(calls_on((await connect([bad, good])).mesh)) == (2, SAID[2])
    assert (len(bad.requests), len(good.requests)) == (1, 1)


def no_probabilities(message: verifier_pb2.VerifyResponse) -> None:
    message.bonus.ClearField("probabilities")


def no_bonus(message: verifier_pb2.VerifyResponse) -> None:
    message.ClearField("bonus")


def bonus_outside_the_vocabulary(message: verifier_pb2.VerifyResponse) -> None:
    message.bonus.token_ids[-1] = VOCAB_SIZE


def more_than_certain(message: verifier_pb2.VerifyResponse) -> None:
    message.bonus.probabilities[0] += 0.5


def tail_that_is_listed(message: verifier_pb2.VerifyResponse) -> None:
    message.bonus.tail_token_id = message.bonus.token_ids[0]


def tail_outside_the_vocabulary(message: verifier_pb2.VerifyResponse) -> None:
    message.bonus.tail_token_id = VOCAB_SIZE


def next_token_of_probability_0(message: verifier_pb2.VerifyResponse) -> None:
    drawable = {*message.bonus.token_ids, message.bonus.tail_token_id}
    message.next_token_id = min(set(range(VOCAB_SIZE)) - drawable)


@pytest.mark.parametrize(
    "corrupt",
    [
        no_probabilities,
        no_bonus,
        bonus_outside_the_vocabulary,
        more_than_certain,
        tail_that_is_listed,
        tail_outside_the_vocabulary,
        next_token_of_probability_0,
    ],
)
async def test_bonus_distribution_that_makes_no_sense_is_asked_of_another_replica(
    connect, corrupt: Corrupt
):
    bad, good = Verifier(), Verifier()
    bad.corrupt = corrupt
    calls = calls_on((await connect([bad, good])).mesh, sampling=RANDOM)
    command = Verify(1, (), EMPTY, drafting_on=True)
    verdict = (
        await calls.verifications.verify(command, calls.command_context(Context(), START))
    ).verdict
    assert verdict.bonus is not None
    assert verdict.bonus.meet([]) == verdict.next_token
    assert (len(bad.requests), len(good.requests)) == (1, 1)


BAD: dict[str, Callable[[Verifier], None]] = {
    "internal": lambda bad: setattr(bad, "always", raising(ZeroDivisionError())[0]),
    "unknown": lambda bad: setattr(bad, "always", raising(Told(grpc.StatusCode.UNKNOWN))[0]),
    "nonsense": lambda bad: setattr(bad, "corrupt", token_outside_the_vocabulary),
}


@pytest.mark.parametrize("how", BAD)
async def test_one_bad_replica_of_three_breaks_no_answer_and_gets_few_calls(connect, serve, how):
    verifiers = [Verifier() for _ in range(3)]
    BAD[how](verifiers[0])
    stub = await serve(await connect(verifiers, [Drafter()]))
    answers = []
    for _ in range(4):
        answers += await asyncio.gather(*(collect(stub.Generate(request())) for _ in range(10)))
    assert all(answer.tokens == alone(request().sampling) for answer in answers)
    bad, *good = (len(verifier.requests) for verifier in verifiers)
    assert bad < sum(good) / 10


async def test_what_two_replicas_say_of_a_request_is_so(connect):
    verifiers = [Verifier() for _ in range(3)]
    for verifier in verifiers:
        (verifier.always,) = raising(InvalidField("tree", "wrong"))
    mesh = (await connect(verifiers)).mesh
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await verified(calls_on(mesh))
    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert sum(len(verifier.requests) for verifier in verifiers) == 2


def poisoned(verifier: Verifier, token: int) -> None:
    """Break on a draft that holds ``token``."""

    async def break_on_it() -> None:
        if token in verifier.requests[-1].tree.token_ids:
            raise ZeroDivisionError

    verifier.always = break_on_it


POISON = 7


async def test_request_that_breaks_two_replicas_is_tried_nowhere_else(connect):
    verifiers = [Verifier() for _ in range(4)]
    mesh = (await connect(verifiers)).mesh
    for verifier in verifiers:
        poisoned(verifier, POISON)
    with pytest.raises(FailedPreconditionStatus) as raised:
        await verified(calls_on(mesh), draft=(POISON,))
    assert raised.value.reason == "REQUEST_BREAKS_REPLICAS"
    told = {"num_broken": "2", "num_replicas": "4", "num_attempts": "3"}
    assert raised.value.metadata == told
    asked = [request for verifier in verifiers for request in verifier.requests]
    assert sum(POISON in request.tree.token_ids for request in asked) == 3
    assert len(asked) == 4  # once for something harmless
    assert sum(bool(verifier.requests) for verifier in verifiers) == 2


async def test_poison_does_not_take_healthy_replicas_out(connect):
    verifiers = [Verifier() for _ in range(3)]
    mesh = (await connect(verifiers)).mesh
    for verifier in verifiers:
        poisoned(verifier, POISON)
    for number in range(20):
        with pytest.raises(FailedPreconditionStatus):
            await verified(calls_on(mesh, f"poison {number}"), draft=(POISON,))
        assert await verified(calls_on(mesh, f"other {number}")) == (2, SAID[2])
        assert len(mesh.verifiers.usable()) == 3
    asked = [request for verifier in verifiers for request in verifier.requests]
    assert sum(POISON in request.tree.token_ids for request in asked) == 20 * 3


async def test_client_is_told_of_logits_that_are_not_finite_and_no_replica_is_blamed(
    connect, serve
):
    async def overflow() -> None:
        raise FloatingPointError("no finite maximum: nan")

    verifiers = [Verifier() for _ in range(3)]
    for verifier in verifiers:
        verifier.always = overflow
    mesh = await connect(verifiers, [Drafter()])
    code, reason = await refusal((await serve(mesh)).Generate(request()))
    assert (code, reason) == (grpc.StatusCode.FAILED_PRECONDITION, "LOGITS_NOT_FINITE")
    assert len(mesh.mesh.verifiers.usable()) == 3
    assert sum(len(verifier.requests) for verifier in verifiers) == 2  # two that agree are believed


async def test_client_is_told_that_its_request_breaks_replicas(connect, serve):
    verifiers = [Verifier() for _ in range(3)]
    for verifier in verifiers:
        verifier.always = partial(break_on_long_ones, verifier)
    stub = await serve(await connect(verifiers, [Drafter()]))
    expected = (grpc.StatusCode.FAILED_PRECONDITION, "REQUEST_BREAKS_REPLICAS")
    assert await refusal(stub.Generate(request())) == expected


async def break_on_long_ones(verifier: Verifier) -> None:
    prefix = verifier.requests[-1].prefix
    if prefix.base_length + len(prefix.token_ids) > len(PROMPT_IDS) + 8:
        raise ZeroDivisionError


async def test_two_bad_replicas_are_not_laid_at_a_requests_door(connect):
    """They are known for failing others; and who knows neither asks one that has answered."""
    verifiers = [Verifier() for _ in range(3)]
    mesh = (await connect(verifiers)).mesh
    with mesh.verifiers.reserve({}), mesh.verifiers.reserve({}):
        assert await verified(calls_on(mesh)) == (2, SAID[2])
    for bad in verifiers[:2]:
        (bad.always,) = raising(ZeroDivisionError())
    for number in range(10):
        assert await verified(calls_on(mesh, str(number))) == (2, SAID[2])


@pytest.mark.parametrize("num_verifiers", [2, 3])
@pytest.mark.parametrize("how", BAD)
async def test_request_is_not_to_blame_if_replicas_that_were_well_break_on_anything(
    connect, num_verifiers, how
):
    verifiers = [Verifier() for _ in range(num_verifiers)]
    calls = calls_on((await connect(verifiers)).mesh)
    assert await verified(calls) == (2, SAID[2])
    for bad in verifiers:
        BAD[how](bad)
    call = asyncio.create_task(verified(calls))
    async with asyncio.timeout(10):
        # One was answered, two broke, and so did what is harmless.
        while sum(len(verifier.requests) for verifier in verifiers) < 4:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    for bad in verifiers:
        bad.always, bad.corrupt = passing, passing_on
    assert await asyncio.wait_for(call, 10) == (2, SAID[2])


def passing_on(message: verifier_pb2.VerifyResponse) -> None:
    """Leave it as it is."""


class Crashing(Verifier):
    """Its process dies of a poisonous draft, and is started again if it ``returns``."""

    num_crashes = 0
    returns = True

    async def _receive(self, request):
        if POISON in request.tree.token_ids:
            self.num_crashes += 1
            self.restart = asyncio.create_task(self._restart())
            await asyncio.Event().wait()
        return await super()._receive(request)

    async def _restart(self) -> None:
        await self.die()
        if self.returns:
            await self.start()


async def test_request_that_kills_replicas_kills_two_at_most(connect):
    verifiers = [Crashing() for _ in range(4)]
    mesh = (await connect(verifiers)).mesh
    with pytest.raises(FailedPreconditionStatus) as raised:
        await asyncio.wait_for(verified(calls_on(mesh), draft=(POISON,)), 10)
    assert raised.value.reason == "REQUEST_BREAKS_REPLICAS"
    assert sum(verifier.num_crashes > 0 for verifier in verifiers) == 2
    assert sum(verifier.num_crashes for verifier in verifiers) == 3


@pytest.fixture
def _short_patience(monkeypatch):
    monkeypatch.setattr(replica_pool, "NO_PEER_SECONDS", 0.3)


@pytest.mark.usefixtures("_short_patience")
async def test_request_that_kills_replicas_for_good_kills_three_at_most(connect):
    verifiers = [Crashing() for _ in range(5)]
    for verifier in verifiers:
        verifier.returns = False
    mesh = (await connect(verifiers)).mesh
    with pytest.raises(FailedPreconditionStatus) as raised:
        await asyncio.wait_for(verified(calls_on(mesh), draft=(POISON,)), 10)
    assert raised.value.reason == "REQUEST_BREAKS_REPLICAS"
    assert sum(verifier.num_crashes for verifier in verifiers) == 3


class Unreachable(Verifier):
    """Its first connections break, each with the process or without; one may be gone for good."""

    def __init__(self, *breaks: str) -> None:
        super().__init__()
        self.breaks = list(breaks)

    async def _receive(self, request):
        if self.breaks:
            self.restart = asyncio.create_task(self._reconnect(self.breaks.pop(0)))
            await asyncio.Event().wait()
        return await super()._receive(request)

    async def _reconnect(self, what: str) -> None:
        await self.die()
        if what != "gone":
            await self.start(self.process_id if what == "connection" else "")


@pytest.mark.parametrize(
    "breaks",
    [
        (["connection"] * 3, ["connection"] * 2),
        (["connection"], ["connection"], ["connection"]),
        (["process", "connection"], ["connection", "connection"]),
    ],
)
async def test_request_is_not_to_blame_for_connections_that_break(connect, breaks):
    # Which replica is back first, and so how many of them the call meets, is chance. After as many
    # failures as this it would be given up without any blame.
    assert sum(map(len, breaks)) < MAX_ATTEMPTS
    mesh = (await connect([Unreachable(*each) for each in breaks])).mesh
    assert await asyncio.wait_for(verified(calls_on(mesh)), 10) == (2, SAID[2])


@pytest.mark.usefixtures("_short_patience")
async def test_request_is_not_to_blame_if_two_replicas_are_gone_for_good(connect):
    gone = [Unreachable("gone"), Unreachable("gone")]
    mesh = (await connect([*gone, Verifier()])).mesh
    assert await asyncio.wait_for(verified(calls_on(mesh)), 10) == (2, SAID[2])
    assert not any(each.breaks for each in gone)


async def test_call_survives_the_death_of_all_replicas_at_once(connect):
    """Whoever was there then has not killed them."""
    verifiers = [Verifier(), Verifier()]
    mesh = (await connect(verifiers)).mesh
    for verifier in verifiers:
        verifier.always = hang
    call = asyncio.create_task(verified(calls_on(mesh)))
    await asyncio.wait_for(verifiers[0].arrived.wait(), 10)
    await asyncio.gather(*(verifier.die() for verifier in verifiers))
    await until(lambda: not mesh.verifiers.ready, *mesh.verifiers.peers)
    for verifier in verifiers:
        verifier.always = passing
        await verifier.start()
    assert await asyncio.wait_for(call, 10) == (2, SAID[2])


async def test_sole_replica_that_breaks_now_and_then_is_asked_again(connect):
    verifier = Verifier()
    mesh = (await connect([verifier])).mesh
    verifier.faults.extend(raising(ZeroDivisionError(), ZeroDivisionError()))
    assert await verified(calls_on(mesh)) == (2, SAID[2])


async def test_sole_replica_that_answers_others_and_not_this_call_is_asked_again(connect):
    """It may be ill: a call is to blame for what several replicas say of it."""
    verifier = Verifier()
    mesh = (await connect([verifier])).mesh
    assert await verified(calls_on(mesh, "before")) == (2, SAID[2])
    verifier.faults.extend(raising(ZeroDivisionError()))
    verifier.faults.append(partial(between, mesh, verifier))
    assert await verified(calls_on(mesh)) == (2, SAID[2])


async def between(mesh: ReplicaPools, verifier: Verifier) -> None:
    """Another call is answered, and the one at hand broken."""
    verifier.faults.appendleft(passing)
    assert await verified(calls_on(mesh, "other")) == (2, SAID[2])
    raise ZeroDivisionError


@pytest.mark.parametrize(
    "error", [ZeroDivisionError(), UnavailableStatus("DRAINING", "")], ids=repr
)
async def test_bad_drafter_is_left_out_even_if_it_is_the_last(connect, error):
    drafter = Drafter()
    mesh = (await connect([Verifier()], [drafter])).mesh
    (drafter.always,) = raising(error)
    for number in range(10):
        with pytest.raises((grpc.aio.AioRpcError, UnavailableStatus)):
            await drafted(calls_on(mesh, str(number)))
    assert len(drafter.requests) == 3


async def test_draft_that_fails_at_one_drafter_is_asked_of_another(connect):
    bad, good = Drafter(), Drafter()
    mesh = (await connect([Verifier()], [bad, good])).mesh
    (bad.always,) = raising(ZeroDivisionError())
    assert await drafted(calls_on(mesh)) == 4
    assert (len(bad.requests), len(good.requests)) == (1, 1)


async def test_request_whose_drafts_break_drafters_drafts_no_more(connect):
    drafters = [Drafter() for _ in range(4)]
    mesh = (await connect([Verifier()], drafters)).mesh
    for drafter in drafters:
        (drafter.always,) = raising(ZeroDivisionError())
    calls = calls_on(mesh)
    for _ in range(3):
        with pytest.raises(FailedPreconditionStatus) as raised:
            await drafted(calls)
        assert raised.value.reason == "REQUEST_BREAKS_REPLICAS"
    assert sum(len(drafter.requests) for drafter in drafters) == 2


async def test_confidence_service_that_fails_is_left_out(connect, serve):
    bad, good = Filter(), Filter()
    connected = await connect([Verifier()], [Drafter()], [bad, good])
    stub = await serve(connected)
    (bad.always,) = raising(ZeroDivisionError())
    for _ in range(5):
        await collect(stub.Generate(request(speculation={"strategy": "filter"})))
    filters = connected.mesh.confidence
    assert filters.outliers.is_ejected(filters.peers[0].address)
    assert 3 <= len(bad.assessed) < len(good.assessed)
