"""The strategy `heads`: transcripts, what replicas are asked for, and what it does without them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import grpc
import pytest
from tests.orchestrator.answers import alone, collect, request
from tests.orchestrator.model import features_but
from tests.orchestrator.peers import Verifier
from tests.orchestrator.test_strategy_rejection import by_position, excess_at, sample
from tests.orchestrator.transcripts import verified
from tests.orchestrator.world import Chances

from specmesh.decoding.acceptance import Verdict
from specmesh.decoding.drafting import TopK
from specmesh.decoding.predict.acceptance_rate import HEADS_CHAIN, AcceptanceRate
from specmesh.decoding.trees.tree import EMPTY, TokenTree
from specmesh.orchestrator.strategies.base import Goal
from specmesh.orchestrator.strategies.commands import Commit, Finish, GiveUp, StopReason, Verify
from specmesh.orchestrator.strategies.events import Capacity, Drafted, Failed, Verified
from specmesh.orchestrator.strategies.heads import Heads
from specmesh.orchestrator.strategies.kit.draft_tree import DraftTree
from specmesh.serving.errors import error_info
from specmesh.v1 import model_pb2, served_model_pb2

MEASURED = Capacity(target_s=0.1, heads_s=0.01, target_token_s=0.002)
SURE = TopK((7, 8), (0.8, 0.15), 0.6)
DRAFTED = Drafted(1, (7, 8, 9, 5), (0, 0, 1, 2), {}, last=True, choices={0: SURE})
TREE = TokenTree((7, 8, 9, 5), (0, 0, 1, 2))
WITHOUT_HEADS = features_but(model_pb2.MODEL_FEATURE_HEADS)


def begun(max_tokens: int = 20, **options: int) -> tuple[Heads, Verify]:
    """A strategy and its first verification, task 1."""
    strategy = Heads(Goal(max_tokens, **options))
    (verify,) = strategy.start(MEASURED)
    assert isinstance(verify, Verify)
    return strategy, verify


def says(task: int, token: int, drafted: Drafted | None = None) -> Verified:
    return Verified(task, Verdict((), token, recovered=False), drafted)


def test_the_first_verification_has_nothing_to_check_and_asks_for_a_tree():
    _, verify = begun()
    assert (verify.tree, verify.path) == (EMPTY, ())
    asked = verify.next_draft
    assert asked is not None
    assert 0 < asked.growth.least_worth < 1
    assert 0 < asked.stop.below < 1


def test_what_a_verdict_brings_is_verified_next():
    strategy, _ = begun()
    commit, verify = strategy.handle(says(1, 4, DRAFTED))
    assert commit == Commit((4,), 0)
    assert (verify.task, verify.tree) == (2, TREE)
    commit, verify = strategy.handle(Verified(2, Verdict((2, 4), 3, recovered=False)))
    assert commit == Commit((8, 5, 3), 2)
    assert (verify.task, verify.tree) == (3, EMPTY)


def test_a_request_sets_depth_and_width():
    _, verify = begun(lookahead=3, width=9)
    assert (verify.next_draft.depth, verify.next_draft.growth.max_nodes) == (3, 9)
    # One token comes before the draft, and the last is the target's.
    _, verify = begun(lookahead=64)
    assert (verify.next_draft.depth, verify.next_draft.growth.max_nodes) == (18, 16)


def test_of_a_tree_only_as_much_is_verified_as_the_answer_has_room_for():
    strategy, _ = begun(max_tokens=4)
    _, verify = strategy.handle(says(1, 4, DRAFTED))
    assert verify.tree == TokenTree((7, 8), (0, 0))
    assert verify.next_draft.depth == 1
    strategy, verify = begun(max_tokens=2)
    assert verify.next_draft is None
    _, verify = strategy.handle(says(1, 4, DRAFTED))
    assert verify.tree == EMPTY


def test_where_heads_do_not_pay_the_target_works_alone_and_tries_again_now_and_then():
    strategy = Heads(Goal(400))
    slow = Capacity(target_s=0.1, heads_s=0.09, target_token_s=0.01)
    (verify,) = strategy.start(slow)
    asked = []
    useless = Drafted(1, (9,), (0,), {}, last=True, choices={0: TopK((9,), (0.5,), 0.6)})
    while verify.task < 300:
        drafted = replace(useless, task=verify.task) if verify.next_draft else None
        asked.append(verify.next_draft is not None)
        verdict = Verdict((), 4, recovered=bool(len(verify.tree)))
        *_, verify = strategy.handle(Verified(verify.task, verdict, drafted))
    assert 0 < sum(asked[50:]) < 10


def test_a_verification_that_fails_ends_the_answer():
    strategy, _ = begun()
    assert strategy.handle(Failed(1)) == [GiveUp(1)]
    strategy = Heads(Goal(1))
    strategy.start(MEASURED)
    assert strategy.handle(verified(1, says=6)) == [Commit((6,), 0), Finish(StopReason.LENGTH)]


SAMPLINGS = ({"temperature": 0}, {"temperature": 0.9, "seed": 4})


async def test_a_mesh_without_drafters_answers_like_the_target_alone(connect, serve):
    verifier = Verifier()
    stub = await serve(await connect([verifier]))
    for sampling in SAMPLINGS:
        verifier.requests.clear()
        asked = request(sampling=sampling, speculation={"strategy": "heads", "width": 12})
        answer = await collect(stub.Generate(asked))
        assert answer.tokens == alone(asked.sampling)
        stats = answer.finished.stats
        assert stats.num_accepted_tokens > 0
        assert stats.num_drafted_tokens >= stats.num_verified_tokens
        assert len(verifier.requests) < len(answer.tokens)
        trees = [list(call.tree.parents) for call in verifier.requests]
        assert trees[0] == []
        assert any(parents.count(0) > 1 for parents in trees)
        assert max(map(len, trees)) <= 12


async def test_each_draft_has_noise_of_its_own_in_rejection_mode_alone(connect, serve):
    for mode, differ in [("REJECTION", True), ("COUPLED", False)]:
        verifier = Verifier()
        stub = await serve(await connect([verifier]))
        sampling = {"seed": 4, "acceptance_mode": f"ACCEPTANCE_MODE_{mode}"}
        await collect(stub.Generate(request(sampling=sampling, speculation={"strategy": "heads"})))
        seeds = [call.next_draft.seed for call in verifier.requests if call.HasField("next_draft")]
        assert len(set(seeds)) == (len(seeds) if differ else 1)
        assert all(call.sampling.seed == 4 for call in verifier.requests)


async def test_replicas_with_heads_and_without_answer_together(connect, serve):
    unable, able = Verifier(features=WITHOUT_HEADS), Verifier()
    behind = await connect([unable, able])
    stub = await serve(behind)
    for sampling in SAMPLINGS:
        asked = request(sampling=sampling, speculation={"strategy": "heads"})
        answer = await collect(stub.Generate(asked))
        assert answer.tokens == alone(asked.sampling)
    assert not unable.requests  # the other was free
    await able.die()
    unable.requests.clear()
    asked = request(speculation={"strategy": "heads"})
    answer = await collect(stub.Generate(asked))
    assert answer.tokens == alone(asked.sampling)
    assert len(unable.requests) == len(answer.tokens)
    assert not any(call.HasField("next_draft") for call in unable.requests)


async def test_a_busy_replica_with_heads_is_not_waited_for(connect, serve):
    able, unable = Verifier(), Verifier(features=WITHOUT_HEADS)
    behind = await connect([able, unable])
    stub = await serve(behind)
    asked = request(speculation={"strategy": "heads"})
    with behind.mesh.verifiers.reserve({}, wanted=model_pb2.MODEL_FEATURE_HEADS):
        answer = await collect(stub.Generate(asked))
    assert answer.tokens == alone(asked.sampling)
    assert not able.requests
    assert len(unable.requests) == len(answer.tokens)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda message: message.parents.append(0),
        lambda message: message.token_ids.__setitem__(0, 1 << 20),
        lambda message: message.parents.__setitem__(0, 99),
    ],
    ids=["lengths", "vocabulary", "parents"],
)
async def test_a_draft_that_makes_no_sense_is_dropped_and_its_verdict_kept(connect, serve, spoil):
    verifier = Verifier()

    def corrupt(response):
        if response.next_draft.token_ids:
            spoil(response.next_draft)

    verifier.corrupt = corrupt
    stub = await serve(await connect([verifier]))
    asked = request(speculation={"strategy": "heads"})
    answer = await collect(stub.Generate(asked))
    assert answer.tokens == alone(asked.sampling)
    assert answer.finished.stats.num_accepted_tokens == 0
    assert len(verifier.requests) == len(answer.tokens)


async def test_heads_that_break_leave_the_target_to_work_alone(connect, serve):
    verifier = Verifier()
    verifier.heads_depth = 0
    stub = await serve(await connect([verifier]))
    asked = request(speculation={"strategy": "heads"})
    answer = await collect(stub.Generate(asked))
    assert answer.tokens == alone(asked.sampling)
    assert answer.finished.stats.num_drafted_tokens == 0


async def test_a_target_without_heads_is_refused_and_listed_so(connect, serve):
    verifier = Verifier(features=WITHOUT_HEADS)
    stub = await serve(await connect([verifier]))
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await collect(stub.Generate(request(speculation={"strategy": "heads"})))
    info = error_info(raised.value)
    assert info is not None
    assert (info.reason, info.metadata["feature"]) == ("UNSUPPORTED_FEATURE", "HEADS")
    assert not verifier.requests
    listed = await stub.ListModels(served_model_pb2.ListModelsRequest())
    (served,) = listed.models
    available = {each.name: each.available for each in served.strategies}
    assert (available["heads"], available["autoregressive"]) == (False, True)


async def test_an_answer_that_has_begun_goes_on_without_heads(connect, serve):
    """Another orchestrator's replicas may have none."""
    behind = await connect([Verifier(features=WITHOUT_HEADS)])
    stub = await serve(behind)
    asked = request(speculation={"strategy": "heads"})
    expected = alone(asked.sampling)
    asked.received.token_ids.extend(expected[:10])
    answer = await collect(stub.Generate(asked))
    assert answer.tokens[-30:] == expected[10:]


async def test_the_time_of_heads_is_measured_apart_from_the_targets(connect, serve):
    verifier = Verifier()

    def costs(response):
        response.cost.forward_ms = 20.0
        if response.next_draft.token_ids:
            response.next_draft.cost.forward_ms = 1e-3 * len(response.next_draft.token_ids)

    verifier.corrupt = costs
    behind = await connect([verifier])
    stub = await serve(behind)
    await collect(stub.Generate(request(speculation={"strategy": "heads"})))
    latencies = behind.mesh.latencies
    assert 0 < latencies.heads.level_s < 1e-4
    assert latencies.target_s.value > 0


def sample_second_children() -> Counter[tuple[int, ...]]:
    """Whether the second of two tokens is drafted as well depends on how sure the heads are."""
    models = (by_position(0.5, 0.5, 0.5), [by_position(0.5, 0.8, 0.5)])
    capacity = Capacity(target_s=0.01, heads_s=0.001, target_token_s=0.0005)
    return sample("heads", (Goal(3), capacity, Chances()), models, num_samples=2_000)


def test_second_children_do_not_tip_the_scales():
    assert excess_at(1, sample_second_children(), 0.5) < 1


def test_children_left_out_for_what_they_are_would_be_seen(monkeypatch):
    def without_zeros(self: DraftTree, num_nodes: int) -> DraftTree:
        kept = [token for token in self.tree.token_ids[:1] if token]
        return DraftTree(TokenTree.chain(kept), {}, dict(self.distributions) if kept else {})

    monkeypatch.setattr(DraftTree, "first", without_zeros)
    assert excess_at(1, sample_second_children(), 0.5) > 1


def test_heads_draft_less_where_answers_queue_for_their_replica():
    alone = replace(MEASURED, heads_s=0.005, heads_depth=8)
    assert alone.heads_costs.best_depth(0.8, 8) > 1
    assert replace(alone, num_waiting=20.0).heads_costs.best_depth(0.8, 8) == 0


def test_heads_draft_a_single_node_until_the_price_of_a_token_is_known():
    strategy = Heads(Goal(20))
    (verify,) = strategy.start(replace(MEASURED, knows_price=False))
    assert (verify.next_draft.depth, verify.next_draft.growth.max_nodes) == (1, 1)


def test_heads_teach_how_often_their_first_choices_are_right():
    goal = Goal(20)
    strategy = Heads(goal)
    strategy.start(MEASURED)
    strategy.handle(says(1, 4, DRAFTED))
    strategy.handle(Verified(2, Verdict((2, 4), 3, recovered=False)))
    assert goal.acceptance.num_trials(HEADS_CHAIN) == pytest.approx(1, rel=0.01)
    assert goal.acceptance.alpha(HEADS_CHAIN) < AcceptanceRate().alpha


def test_a_trial_of_heads_counts_what_it_takes_from_all_that_share_the_replica():
    costs = replace(MEASURED, period_s=0.1, num_sharing=32.0).heads_costs
    assert costs.explored_s() == pytest.approx(0.002 + 32 * 0.01)


def test_without_drafts_the_target_decodes_on():
    strategy = Heads(Goal(400))
    slow = Capacity(target_s=0.1, heads_s=0.09, target_token_s=0.01)
    (verify,) = strategy.start(slow)
    while verify.next_draft is not None:
        *_, verify = strategy.handle(says(verify.task, 4))
    assert verify.num_further == 20
    more = replace(says(verify.task, 4), more=True)
    assert strategy.handle(more) == [Commit((4,), 0)]
    _, following = strategy.handle(says(verify.task, 4))
    assert following.task == verify.task + 1
