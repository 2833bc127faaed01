"""Where nobody reads along, several tokens of the target's own come in one response."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import grpc
import pytest
from tests.orchestrator.answers import NUM_TOKENS, alone, collect, request
from tests.orchestrator.model import features_but
from tests.orchestrator.peers import Verifier, hang, passing, raising
from tests.orchestrator.test_further_tokens import decoding

from specmesh.decoding.acceptance import Verdict
from specmesh.mesh.v1alpha1 import verifier_pb2
from specmesh.orchestrator.answers import answer as answers
from specmesh.orchestrator.replicas.latencies.mesh_latencies import Latencies
from specmesh.orchestrator.replicas.latencies.observations import ReplicaCost, TimedVerification
from specmesh.orchestrator.requests.chunk_intervals import CHUNK_INTERVAL
from specmesh.orchestrator.requests.plan import Defaults
from specmesh.orchestrator.strategies import STRATEGIES
from specmesh.orchestrator.strategies.base import Goal
from specmesh.orchestrator.strategies.commands import Commit, Verify
from specmesh.orchestrator.strategies.events import Capacity, Verified
from specmesh.serving.errors import UnavailableStatus, invalid_field
from specmesh.v1 import generation_pb2 as pb
from specmesh.v1 import model_pb2

HEDGES = True

RARELY = ((CHUNK_INTERVAL, "250"),)
AWAY = UnavailableStatus("DRAINING", "going")
GREEDY = {"temperature": 0}
COUPLED = {"temperature": 0.9, "seed": 4}
REJECTION = {**COUPLED, "acceptance_mode": "ACCEPTANCE_MODE_REJECTION"}


def asked(sampling: dict[str, object], **fields: object) -> pb.GenerateRequest:
    return request(sampling=sampling, speculation={"strategy": "autoregressive"}, **fields)


@pytest.mark.parametrize("sampling", [GREEDY, COUPLED, REJECTION])
async def test_answers_are_the_same(connect, serve, sampling):
    verifier = decoding()
    stub = await serve(await connect([verifier]))
    message = asked(sampling)
    streamed = await collect(stub.Generate(message))
    whole = await stub.Complete(pb.CompleteRequest(request=message))
    rarely = await collect(stub.Generate(message, metadata=RARELY))
    assert list(whole.chunk.token_ids) == rarely.tokens == streamed.tokens
    assert whole.chunk.text == rarely.text == streamed.text
    assert [bool(each.collect_ms) for each in verifier.requests] == [False, False, True, True]
    assert whole.finished.stats.num_verify_calls == NUM_TOKENS
    assert whole.finished.stats.num_target_tokens == NUM_TOKENS


async def test_chunks_are_few(connect, serve):
    stub = await serve(await connect([decoding()]))
    message = asked(GREEDY)
    await collect(stub.Generate(message))  # what calls take is known now
    answer = await collect(stub.Generate(message, metadata=RARELY))
    assert len(answer.chunks) <= 3
    assert len(answer.chunks[0].token_ids) == 1  # the first token waits for nobody


@pytest.mark.parametrize("text", ["-1", "501", "many", "", "9" * 5000])
async def test_an_interval_that_is_none_is_refused(connect, serve, text):
    stub = await serve(await connect([decoding()]))
    with pytest.raises(grpc.aio.AioRpcError, match="500") as raised:
        await collect(stub.Generate(asked(GREEDY), metadata=((CHUNK_INTERVAL, text),)))
    refused = invalid_field(raised.value)
    assert refused is not None
    assert refused.field == CHUNK_INTERVAL


async def test_a_whole_answer_has_its_own_interval(connect, serve):
    verifier = decoding()
    stub = await serve(await connect([verifier]))
    asked_for = pb.CompleteRequest(request=asked(GREEDY))
    for _ in range(2):
        await stub.Complete(asked_for, metadata=((CHUNK_INTERVAL, "10"),))
    assert verifier.requests[-1].collect_ms == 250


async def test_an_orchestrator_may_have_an_interval_for_all(connect, serve):
    verifier = decoding()
    defaults = Defaults("autoregressive", chunk_interval_s=0.1)
    stub = await serve(await connect([verifier]), defaults=defaults)
    await collect(stub.Generate(asked(GREEDY)))
    await collect(stub.Generate(asked(GREEDY)))
    await collect(stub.Generate(asked(GREEDY), metadata=RARELY))
    assert verifier.requests[-2].collect_ms == 100
    assert verifier.requests[-1].collect_ms == 250


async def test_replicas_collect_tokens_for_as_long_as_those_wait_in_line_anyway(connect, serve):
    verifier = decoding()
    waits_s = 0.0
    sooner_s, sooner_each_s = 0.0, 1.0

    def stamp(response):
        nonlocal sooner_s
        sooner_s += sooner_each_s
        now = asyncio.get_running_loop().time()
        response.cost.computed_at_s = now + 1e6 + sooner_s - waits_s

    verifier.corrupt = stamp
    stub = await serve(await connect([verifier]))
    message = asked(GREEDY)
    for _ in range(2):
        await collect(stub.Generate(message))
    # Each was the quickest so far, however busy this machine is.
    assert not any(each.collect_ms for each in verifier.requests)
    sooner_each_s = 0.0
    await collect(stub.Generate(message))
    waits_s = 0.03
    for _ in range(40):  # those that are collected tell little, so this takes some answers
        answer = await collect(stub.Generate(message))
        assert answer.tokens == alone(message.sampling)
        if verifier.requests[-1].collect_ms >= 25:
            break
    assert 25 <= verifier.requests[-1].collect_ms <= 50  # on a busy machine they do wait longer


@pytest.mark.parametrize(("waited_s", "expected"), [(0.004, 0.0), (0.02, 0.02), (3.0, 0.05)])
def test_they_are_collected_for_a_short_time_at_most(waited_s, expected):
    latencies = Latencies()
    cost = ReplicaCost(forward_s=0.01, num_computed_tokens=1, num_batch_calls=1)
    latencies.verified(TimedVerification(0.5, 0, cost, waited_s=9.0))
    assert latencies.collect_s == 0  # its way was long, and it waited for nobody
    latencies.verified(TimedVerification(0.5, 0, cost, is_further=True, waited_s=waited_s))
    assert latencies.collect_s == expected


async def test_an_older_replica_sends_each_by_itself(connect, serve):
    verifier = decoding(features=features_but(model_pb2.MODEL_FEATURE_COLLECTED_TOKENS))
    stub = await serve(await connect([verifier]))
    message = asked(GREEDY)
    for _ in range(2):
        whole = await stub.Complete(pb.CompleteRequest(request=message))
        assert list(whole.chunk.token_ids) == alone(message.sampling)
    assert not any(each.collect_ms for each in verifier.requests)


async def test_log_probabilities_need_a_response_for_each(connect, serve):
    verifier = decoding()
    stub = await serve(await connect([verifier]))
    message = asked(GREEDY, num_top_logprobs=2)
    for _ in range(2):
        whole = await stub.Complete(pb.CompleteRequest(request=message))
        assert len(whole.chunk.logprobs) == NUM_TOKENS
    assert not any(each.collect_ms for each in verifier.requests)


@pytest.mark.parametrize("stopping", [{"stop_strings": ["no such"]}, {"stop_token_ids": [0]}])
async def test_a_replica_that_does_not_know_where_the_answer_ends_sends_each_at_once(
    connect, serve, stopping
):
    """It would decode on behind the end while tokens wait there."""
    verifier = decoding()
    stub = await serve(await connect([verifier]))
    message = asked(GREEDY, stopping={"max_tokens": NUM_TOKENS, **stopping})
    for _ in range(2):
        whole = await stub.Complete(pb.CompleteRequest(request=message))
        assert list(whole.chunk.token_ids) == alone(message.sampling)
    assert verifier.requests[-1].num_further_tokens
    assert not any(each.collect_ms for each in verifier.requests)


@pytest.mark.parametrize("sampling", [GREEDY, COUPLED])
async def test_what_a_replica_had_collected_when_it_broke_comes_from_another(
    connect, serve, sampling
):
    verifiers = [decoding(), decoding()]
    stub = await serve(await connect(verifiers))
    message = asked(sampling)
    for _ in range(2):
        for verifier in verifiers:
            verifier.further_faults += [*[passing] * 6, *raising(AWAY)] * 3
        whole = await stub.Complete(pb.CompleteRequest(request=message))
        assert list(whole.chunk.token_ids) == alone(message.sampling)


async def test_replica_that_hangs_meanwhile_is_hedged(connect, serve):
    verifiers = [decoding(), decoding()]

    async def hang_first():
        for verifier in verifiers:
            verifier.further_faults.clear()
        await hang()

    stub = await serve(await connect(verifiers))
    message = asked(GREEDY)
    await collect(stub.Generate(message))
    for verifier in verifiers:
        verifier.further_faults += [*[passing] * 6, hang_first]
    began = asyncio.get_running_loop().time()
    whole = await stub.Complete(pb.CompleteRequest(request=asked(GREEDY, cache_salt="another")))
    assert list(whole.chunk.token_ids) == alone(message.sampling)
    assert asyncio.get_running_loop().time() - began < 1.5


class Corrupt(Verifier):
    """Spoils its responses to requests whose tokens may wait."""

    def __init__(self, corrupt: Callable[[verifier_pb2.VerifyResponse], None]) -> None:
        super().__init__()
        self.decodes_on, self.cost.forward_ms = True, 2.0
        self.spoil = corrupt

    async def _responses(self, request, context):
        async for response in super()._responses(request, context):
            if request.collect_ms and response.collected_token_ids:
                self.spoil(response)
            yield response


def _promise(response):
    response.collected_token_ids.extend([1] * (NUM_TOKENS - 6))
    response.has_more = True


def _too_many(response):
    response.collected_token_ids.extend([1] * 300)


def _unknown(response):
    response.collected_token_ids[0] = 1 << 30


@pytest.mark.parametrize(
    ("corrupt", "field"),
    [(_promise, "has_more"), (_too_many, "collected_token_ids"), (_unknown, "collected_token_ids")],
)
async def test_a_replica_that_sends_what_it_cannot_is_not_believed(
    connect, serve, caplog, corrupt, field
):
    stub = await serve(await connect([Corrupt(corrupt), decoding()]))
    message = asked(GREEDY)
    for _ in range(4):
        whole = await stub.Complete(pb.CompleteRequest(request=message))
        assert list(whole.chunk.token_ids) == alone(message.sampling)
    refused = [each.reason for each in caplog.records if each.message == "bad verdict"]
    assert any(each.startswith(field) for each in refused)


async def test_a_healthy_replica_is_not_late_while_it_collects(connect, serve):
    async def slowly():
        await asyncio.sleep(0.03)

    verifiers = [decoding(), decoding()]
    mesh = await connect(verifiers)
    stub = await serve(mesh)
    message = asked(GREEDY)
    for _ in range(3):
        for verifier in verifiers:
            verifier.further_faults.clear()
            verifier.further_faults += [slowly] * NUM_TOKENS
        await stub.Complete(pb.CompleteRequest(request=message))
    assert sum(len(each.requests) for each in verifiers) <= 4


async def test_the_first_token_waits_for_nobody_however_long_it_takes(connect, serve, monkeypatch):
    monkeypatch.setattr(answers, "HEARTBEAT_S", 0.05)

    async def reading():
        await asyncio.sleep(0.2)

    verifier = decoding()
    verifier.faults += [reading]
    stub = await serve(await connect([verifier]))
    now = asyncio.get_running_loop().time
    began = now()
    async for response in stub.Generate(asked(GREEDY), metadata=((CHUNK_INTERVAL, "500"),)):
        if response.event.HasField("chunk"):
            break
    assert now() - began < 0.5


def test_verifications_that_may_race_do_not_collect():
    """The tokens in two verdicts must not decide which of them counts."""
    (verify,) = [
        each
        for each in STRATEGIES["dsi"](Goal(max_tokens=100)).start(
            Capacity(num_verifiers=2, target_s=0.01, drafter_s=1.0)
        )
        if isinstance(each, Verify)
    ]
    assert verify.num_further
    assert not verify.may_wait


@pytest.mark.parametrize(
    "name", ["autoregressive", "speculative", "branch-prediction", "tree", "heads", "auto"]
)
def test_every_strategy_commits_all_of_them(name):
    """The drafter is too slow to be of use."""
    strategy = STRATEGIES[name](Goal(max_tokens=100, end_of_text_ids=frozenset({9})))
    slow = Capacity(target_s=0.01, drafter_s=1.0)
    (verify,) = [each for each in strategy.start(slow) if isinstance(each, Verify)]
    assert verify.num_further
    assert verify.may_wait
    verdict = Verdict((), 7, recovered=False)
    commands = strategy.handle(Verified(verify.task, verdict, more=True, collected=(8, 5)))
    assert commands == [Commit((7, 8, 5), 0)]
    commit, *_ = strategy.handle(Verified(verify.task, verdict, more=True, collected=(9, 5)))
    assert commit == Commit((7, 9), 0)
