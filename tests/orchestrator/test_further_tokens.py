"""The target decodes on by itself between two calls, and nothing is lost where that ends early."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from tests.orchestrator.answers import NUM_TOKENS, alone, collect, request
from tests.orchestrator.model import features_but
from tests.orchestrator.peers import Hold, Verifier, hang, passing, raising

from specmesh.decoding.acceptance import Verdict
from specmesh.decoding.trees.tree import EMPTY
from specmesh.orchestrator.replicas.latencies.mesh_latencies import Latencies
from specmesh.orchestrator.replicas.latencies.observations import ReplicaCost, TimedVerification
from specmesh.orchestrator.replicas.prefixes.prefix import CommittedPrefix
from specmesh.orchestrator.strategies.base import Goal
from specmesh.orchestrator.strategies.commands import Cancel, Commit, Draft, Verify
from specmesh.orchestrator.strategies.events import Capacity, Verified
from specmesh.orchestrator.strategies.kit.further import MOST, num_further
from specmesh.orchestrator.strategies.speculative import Speculative
from specmesh.serving.errors import UnavailableStatus
from specmesh.v1 import events_pb2, model_pb2
from specmesh.v1 import generation_pb2 as pb

HEDGES = True

AWAY = UnavailableStatus("DRAINING", "going")
MODES = pytest.mark.parametrize(
    "sampling", [{"temperature": 0}, {"temperature": 0.9, "seed": 4}], ids=["greedy", "coupled"]
)


def decoding(**changes: object) -> Verifier:
    """A replica that decodes on, and says how fast it is."""
    verifier = Verifier(**changes)
    verifier.decodes_on = True
    verifier.cost.forward_ms = 2.0
    return verifier


def asked(sampling: dict[str, object], **fields: object) -> pb.GenerateRequest:
    return request(sampling=sampling, speculation={"strategy": "autoregressive"}, **fields)


@MODES
async def test_few_calls_bring_many_tokens(connect, serve, sampling):
    verifier = decoding()
    stub = await serve(await connect([verifier]))
    message = asked(sampling)
    answer = await collect(stub.Generate(message))
    assert answer.tokens == alone(message.sampling)
    # The first call does not know how fast the replica is.
    assert [each.num_further_tokens for each in verifier.requests] == [0, NUM_TOKENS - 2]
    stats = answer.finished.stats
    assert stats.num_verify_calls == stats.num_target_tokens == NUM_TOKENS
    assert set(answer.kinds) == {events_pb2.TOKEN_KIND_BONUS}


async def test_log_probabilities_come_with_each(connect, serve):
    tokens = {}
    for decodes_on in (False, True):
        verifier = decoding()
        verifier.decodes_on = decodes_on
        stub = await serve(await connect([verifier]))
        message = asked({"temperature": 0.9, "seed": 4}, num_top_logprobs=2)
        answer = await collect(stub.Generate(message))
        tokens[decodes_on] = [each for chunk in answer.chunks for each in chunk.logprobs]
    assert len(tokens[True]) == NUM_TOKENS
    assert tokens[True] == tokens[False]


@MODES
async def test_replica_that_breaks_meanwhile_is_replaced_by_another(connect, serve, sampling):
    verifiers = [decoding(), decoding()]
    stub = await serve(await connect(verifiers))
    for verifier in verifiers:
        verifier.further_faults += [*[passing] * 7, *raising(AWAY)] * 3
    message = asked(sampling)
    assert (await collect(stub.Generate(message))).tokens == alone(message.sampling)
    assert min(len(verifier.requests) for verifier in verifiers) >= 1


async def test_sole_replica_that_breaks_every_few_tokens_is_asked_again(connect, serve):
    """Each token has as many attempts as one that is asked for alone."""
    verifier = decoding()
    stub = await serve(await connect([verifier]))
    verifier.further_faults += [*[passing] * 3, *raising(AWAY)] * 9
    message = asked({"temperature": 0})
    assert (await collect(stub.Generate(message))).tokens == alone(message.sampling)
    assert len(verifier.requests) > 9


async def test_replica_that_hangs_meanwhile_is_hedged(connect, serve):
    verifiers = [decoding(), decoding()]
    stub = await serve(await connect(verifiers))
    message = asked({"temperature": 0})
    await collect(stub.Generate(message))  # what calls take is known now
    for verifier in verifiers:
        verifier.further_faults += [*[passing] * 9, hang]
    began = asyncio.get_running_loop().time()
    answer = await collect(stub.Generate(asked({"temperature": 0}, cache_salt="another")))
    assert answer.tokens == alone(message.sampling)
    assert asyncio.get_running_loop().time() - began < 5


async def test_nothing_goes_on_behind_the_end_of_an_answer(connect, serve):
    verifier = decoding()
    mesh = await connect([verifier])
    stub = await serve(mesh)
    tokens = alone(asked({"temperature": 0}).sampling)
    last = tokens[5]
    assert last not in tokens[:5]
    hold = Hold()
    verifier.further_faults += [*[passing] * 4, hold]
    stopping = {"max_tokens": NUM_TOKENS, "stop_token_ids": [last]}
    answer = await collect(stub.Generate(asked({"temperature": 0}, stopping=stopping)))
    assert answer.tokens == tokens[:6]
    await asyncio.wait_for(verifier.cancelled.wait(), 10)
    assert [peer.num_outstanding for peer in mesh.mesh.verifiers.peers] == [0]


async def test_a_replica_is_not_blamed_for_tokens_behind_the_end_of_an_answer(
    connect, serve, caplog
):
    """They may arrive with the last one."""
    stub = await serve(await connect([decoding()]))
    message = asked({"temperature": 0})
    await collect(stub.Generate(message))  # what calls take is known now
    message.stopping.stop_token_ids.append(alone(message.sampling)[5])
    for _ in range(5):
        await asyncio.gather(*(collect(stub.Generate(message)) for _ in range(8)))
    assert "bad verdict" not in caplog.messages


async def test_an_older_replica_is_asked_for_each_token(connect, serve):
    features = features_but(model_pb2.MODEL_FEATURE_FURTHER_TOKENS)
    verifier = decoding(features=features)
    stub = await serve(await connect([verifier]))
    message = asked({"temperature": 0})
    assert (await collect(stub.Generate(message))).tokens == alone(message.sampling)
    assert [each.num_further_tokens for each in verifier.requests] == [0] * NUM_TOKENS


async def test_a_replica_that_promises_more_than_was_asked_for_is_not_believed(connect, serve):
    """Else a later response would be taken for the answer to the next request."""
    verifiers = [Verifier(), Verifier()]

    def promise(message):
        message.has_more = True

    verifiers[0].corrupt = promise
    stub = await serve(await connect(verifiers))
    message = asked({"temperature": 0})
    assert (await collect(stub.Generate(message))).tokens == alone(message.sampling)
    assert len(verifiers[0].requests) < 10


class Stuttering(Verifier):
    """Sends the fourth of its responses to a request twice, or not at all."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.decodes_on = True
        self.times = times

    async def _responses(self, request, context):
        number = 0
        async for response in super()._responses(request, context):
            number += 1
            for _ in range(self.times if number == 4 else 1):
                yield response


@pytest.mark.parametrize("times", [0, 2])
async def test_a_response_that_is_missing_or_comes_twice_is_noticed(connect, serve, times):
    bad, good = Stuttering(times), decoding()
    bad.cost.forward_ms = 2.0
    stub = await serve(await connect([bad, good]))
    message = asked({"temperature": 0})
    for _ in range(3):
        assert (await collect(stub.Generate(message))).tokens == alone(message.sampling)
    assert any(each.num_further_tokens > 3 for each in bad.requests)


async def test_responses_of_older_replicas_have_no_numbers(connect, serve):
    class Older(Verifier):
        async def _responses(self, request, context):
            async for response in super()._responses(request, context):
                response.number = 0
                yield response

    verifier = Older()
    verifier.decodes_on, verifier.cost.forward_ms = True, 2.0
    stub = await serve(await connect([verifier]))
    message = asked({"temperature": 0})
    assert (await collect(stub.Generate(message))).tokens == alone(message.sampling)
    assert len(verifier.requests) == 2


async def test_a_series_of_tokens_counts_as_held_only_once_it_has_ended(
    connect, serve, monkeypatch
):
    """Before, the replica knows no name for its blocks."""
    lengths = []
    seen_by = CommittedPrefix.seen_by

    def seen(prefix, replica, length):
        lengths.append(length)
        seen_by(prefix, replica, length)

    monkeypatch.setattr(CommittedPrefix, "seen_by", seen)
    stub = await serve(await connect([decoding()]))
    await collect(stub.Generate(asked({"temperature": 0})))
    prompt = lengths[0]
    assert lengths == [prompt, prompt + 1, prompt + NUM_TOKENS - 1]


def test_target_decodes_on_until_a_draft_pays():
    slow = Capacity(target_s=0.01, drafter_s=0.1)
    strategy = Speculative(Goal(max_tokens=100))
    (verify,) = strategy.start(slow)
    assert verify == Verify(1, (), EMPTY, num_further=MOST, may_wait=True)
    verified = Verified(1, Verdict((), 7, recovered=False), more=True)
    for _ in range(3):
        assert strategy.handle(verified) == [Commit((7,), 0)]
    assert strategy.handle(replace(slow, drafter_s=0.0001)) == []
    commit, cancel, draft = strategy.handle(verified)
    assert (commit, cancel) == (Commit((7,), 0), Cancel(1))
    assert isinstance(draft, Draft)
    assert strategy.handle(verified) == []  # it was on its way


@pytest.mark.parametrize(("forward_s", "expected"), [(None, 0), (5.0, 0), (0.1, 20), (0.001, MOST)])
def test_a_call_goes_on_for_about_two_seconds(forward_s, expected):
    assert num_further(Capacity(target_s=forward_s), 100) == expected


def test_times_of_next_to_nothing_let_a_call_go_on_for_as_long_as_any():
    assert num_further(Capacity(target_s=1e-310), 100) == MOST
    assert num_further(Capacity(target_s=0.01, behind_s=1e-310), 100) == MOST


def test_a_call_goes_on_no_further_than_the_answer():
    assert num_further(Capacity(target_s=0.01), 4) == 3


@pytest.mark.parametrize(
    ("behind_s", "expected"), [(0.0, MOST), (0.001, MOST), (0.06, 5), (10.0, 1)]
)
def test_verdicts_wait_a_third_of_a_second_at_most_where_the_orchestrator_is_behind(
    behind_s, expected
):
    assert num_further(Capacity(target_s=0.001, behind_s=behind_s), 100) == expected


def test_only_further_verdicts_tell_how_far_behind_the_orchestrator_is():
    latencies = Latencies()
    cost = ReplicaCost(forward_s=0.01, num_computed_tokens=1, num_batch_calls=1)
    latencies.verified(TimedVerification(0.5, 0, cost, behind_s=0.4))
    assert latencies.capacity(1, (), 0, 1).behind_s == 0
    latencies.verified(TimedVerification(0.5, 0, cost, is_further=True, behind_s=0.03))
    capacity = latencies.capacity(1, (), 0, 1)
    assert capacity.behind_s == 0.03
    assert capacity.target_s == 0.5  # of the call that was sent


class Line:
    """What a replica says of its clock, which began at any time, while its responses wait."""

    def __init__(self, verifier: Verifier) -> None:
        self.waits_s = 0.0
        self.sooner_each_s = 0.0
        """Above 0, each is the quickest so far, however busy this machine is."""
        self._sooner_s = 0.0
        verifier.corrupt = self._stamp

    def _stamp(self, response):
        self._sooner_s += self.sooner_each_s
        now = asyncio.get_running_loop().time()
        response.cost.computed_at_s = now + 1e6 + self._sooner_s - self.waits_s


async def test_fewer_are_asked_for_where_verdicts_wait_in_line(connect, serve):
    verifier = decoding()
    line = Line(verifier)
    line.sooner_each_s = 1.0
    stub = await serve(await connect([verifier]))
    await collect(stub.Generate(asked({"temperature": 0})))
    line.sooner_each_s, line.waits_s = 0.0, 0.7
    for _ in range(3):
        await collect(stub.Generate(asked({"temperature": 0})))
    num_asked = [each.num_further_tokens for each in verifier.requests]
    assert num_asked[:3] == [0, NUM_TOKENS - 2, NUM_TOKENS - 1]
    assert 1 <= num_asked[-1] <= NUM_TOKENS // 2


async def test_as_many_are_asked_for_where_requests_take_long_to_arrive(connect, serve):
    verifier = decoding()
    Line(verifier)
    stub = await serve(await connect([verifier]))

    async def far_away():
        await asyncio.sleep(0.4)

    await collect(stub.Generate(asked({"temperature": 0})))
    verifier.faults += [far_away] * 2
    await collect(stub.Generate(asked({"temperature": 0})))
    await collect(stub.Generate(asked({"temperature": 0})))
    assert verifier.requests[3].num_further_tokens == NUM_TOKENS - 1


async def test_admission_counts_the_time_for_which_verdicts_wait_in_line(
    connect, serve, monkeypatch
):
    verifier = decoding()
    line = Line(verifier)
    mesh = await connect([verifier])
    stub = await serve(mesh)
    seen = []
    learn = mesh.mesh.admission.verified

    def verified(num_replicas, spent, now, times):
        seen.extend([spent.overhead_ms] * times)
        learn(num_replicas, spent, now, times)

    monkeypatch.setattr(mesh.mesh.admission, "verified", verified)
    await collect(stub.Generate(asked({"temperature": 0})))
    line.waits_s = 0.2
    await collect(stub.Generate(asked({"temperature": 0})))
    assert min(seen[-NUM_TOKENS // 2 :]) > 190 > max(seen[2 : NUM_TOKENS // 2])
