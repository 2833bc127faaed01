"""The strategy `tree`: transcripts, what the mesh is asked for, and what would not be exact."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from tests.decoding.test_losslessness import NUM_TOKENS, exact_law, excess
from tests.orchestrator.answers import alone, collect, request
from tests.orchestrator.goals import CALIBRATED_TREES
from tests.orchestrator.model import ALL_FEATURES
from tests.orchestrator.peers import Drafter, Verifier
from tests.orchestrator.test_strategy_rejection import (
    DRAFTERS,
    TARGET,
    by_position,
    excess_at,
    sample,
)
from tests.orchestrator.transcripts import verified
from tests.orchestrator.world import Chances

from specmesh.decoding.acceptance import Verdict
from specmesh.decoding.drafting import TopK
from specmesh.decoding.sampling import Sampling
from specmesh.decoding.trees import growth as tree_growth
from specmesh.decoding.trees.calibrated import CalibratedTree, CalibratedTrees
from specmesh.decoding.trees.growth import TreeGrowth
from specmesh.decoding.trees.siblings import sibling_confidences
from specmesh.decoding.trees.tree import TokenTree
from specmesh.orchestrator.requests.plan import Defaults
from specmesh.orchestrator.strategies.base import Goal
from specmesh.orchestrator.strategies.commands import (
    Commit,
    Draft,
    Finish,
    GiveUp,
    StopReason,
    Verify,
)
from specmesh.orchestrator.strategies.events import Capacity, Drafted, Failed, Verified
from specmesh.orchestrator.strategies.options import CALIBRATED, GROWN
from specmesh.orchestrator.strategies.tree import Tree
from specmesh.v1 import model_pb2

MEASURED = Capacity(target_s=0.1, drafter_s=0.01, target_token_s=0.002)
SURE = TopK((7, 8), (0.8, 0.15), 0.6)
DRAFTED = Drafted(1, (7, 8, 9, 5), (0, 0, 1, 2), {}, last=True, choices={0: SURE})
TREE = TokenTree((7, 8, 9, 5), (0, 0, 1, 2))


def begun(**options: Any) -> tuple[Tree, Draft]:
    """A strategy and its first draft, task 1."""
    strategy = Tree(Goal(20, **options))
    (draft,) = strategy.start(MEASURED)
    assert isinstance(draft, Draft)
    return strategy, draft


def test_the_whole_tree_is_verified_in_one_call_and_the_path_that_stands_is_committed():
    strategy, _ = begun()
    assert strategy.handle(DRAFTED) == [Verify(2, (), TREE)]
    verdict = Verdict((2, 4), 3, recovered=False)
    commit, draft = strategy.handle(Verified(2, verdict))
    assert commit == Commit((8, 5, 3), 2)
    assert isinstance(draft, Draft)
    assert draft.task == 3


def test_a_token_in_place_of_all_siblings_is_recovered():
    strategy, _ = begun()
    strategy.handle(DRAFTED)
    verdict = Verdict((1,), 4, recovered=True)
    commit, _ = strategy.handle(Verified(2, verdict))
    assert commit == Commit((7, 4), 1, recovered=True)


def test_a_draft_is_one_message_and_says_what_a_node_must_be_worth():
    _, draft = begun()
    assert draft.levels_per_message == draft.depth
    assert draft.growth is not None
    assert draft.stop is not None
    assert 0 < draft.growth.least_worth < 1
    assert 0 < draft.stop.below < 1


def test_a_request_sets_depth_and_width():
    _, draft = begun(lookahead=3, width=9)
    assert (draft.depth, draft.growth.max_nodes) == (3, 9)
    _, draft = begun(lookahead=64)
    assert draft.depth == 19  # the last token is the target's


def test_without_a_draft_the_target_works_alone():
    strategy, _ = begun()
    assert strategy.handle(Failed(1)) == [Verify(2, (), TokenTree((), ()))]
    assert strategy.handle(Failed(2)) == [GiveUp(2)]
    slow = Tree(Goal(1))
    assert slow.start(MEASURED) == [Verify(1, (), TokenTree((), ()))]
    assert slow.handle(verified(1, says=6)) == [Commit((6,), 0), Finish(StopReason.LENGTH)]


async def test_a_mesh_is_asked_for_trees_and_answers_like_the_target_alone(connect, serve):
    verifier, drafter = Verifier(), Drafter(agreement=0.5)
    stub = await serve(await connect([verifier], [drafter]))
    for sampling in ({"temperature": 0}, {"temperature": 0.9, "seed": 4}):
        asked = request(sampling=sampling, speculation={"strategy": "tree", "width": 12})
        answer = await collect(stub.Generate(asked))
        assert answer.tokens == alone(asked.sampling)
        assert answer.finished.stats.num_accepted_tokens > 0
    trees = [list(call.tree.parents) for call in verifier.requests]
    assert any(parents.count(0) > 1 for parents in trees)
    assert max(map(len, trees)) <= 12


async def test_a_drafter_that_knows_no_such_trees_is_asked_for_a_chain(connect, serve):
    others = [each for each in ALL_FEATURES if each != model_pb2.MODEL_FEATURE_TREE_GROWTH]
    verifier, drafter = Verifier(), Drafter(features=others)
    stub = await serve(await connect([verifier], [drafter]))
    asked = request(speculation={"strategy": "tree", "lookahead": 3})
    answer = await collect(stub.Generate(asked))
    assert answer.tokens == alone(asked.sampling)
    assert answer.finished.stats.num_accepted_tokens > 0
    assert not any(call.HasField("growth") for call in drafter.requests)
    for call in verifier.requests:
        assert list(call.tree.parents) == list(range(len(call.tree.token_ids)))


def test_calibrated_trees_fill_a_width_as_far_as_there_is_room():
    _, draft = begun(width=6, shape=CALIBRATED, calibrated_trees=CALIBRATED_TREES)
    shape = CALIBRATED_TREES[5]
    assert (draft.shape, draft.depth, draft.growth) == (shape, shape.depth, None)
    assert draft.levels_per_message == draft.depth
    _, draft = begun(width=64, shape=CALIBRATED, calibrated_trees=CALIBRATED_TREES)
    assert draft.shape == CALIBRATED_TREES[-1]
    (draft,) = Tree(Goal(4, width=6, shape=CALIBRATED, calibrated_trees=CALIBRATED_TREES)).start(
        MEASURED
    )
    assert draft.shape == CALIBRATED_TREES[2]  # the last token is the target's
    _, draft = begun(width=6, lookahead=2, shape=CALIBRATED, calibrated_trees=CALIBRATED_TREES)
    assert (draft.shape, draft.depth) == (shape, 2)


@pytest.mark.parametrize(
    "options", [{}, {"shape": CALIBRATED}, {"width": 6}, {"width": 6, "shape": GROWN}]
)
def test_trees_grow_without_a_width_and_where_that_is_asked_for(options):
    _, draft = begun(calibrated_trees=CALIBRATED_TREES, **options)
    assert draft.shape is None
    assert draft.growth is not None


def test_without_calibrated_trees_all_grow():
    _, draft = begun(width=6, shape="calibrated")
    assert draft.growth is not None


def given_trees(target_digest: str) -> Defaults:
    listed = tuple(CalibratedTree(shape, 1.5) for shape in CALIBRATED_TREES)
    return Defaults("tree", trees=CalibratedTrees(target_digest, "of a drafter", {0.8: listed}))


@pytest.mark.parametrize("mode", ["ACCEPTANCE_MODE_COUPLED", "ACCEPTANCE_MODE_REJECTION"])
async def test_a_drafter_is_asked_for_the_shape_that_was_calibrated(connect, serve, mode):
    verifier, drafter = Verifier(weights_digest="ours"), Drafter(agreement=0.5)
    stub = await serve(await connect([verifier], [drafter]), defaults=given_trees("ours"))
    sampling = {"temperature": 0.9, "seed": 4, "acceptance_mode": mode}
    asked = request(sampling=sampling, speculation={"width": 6, "shape": CALIBRATED})
    answer = await collect(stub.Generate(asked))
    if mode == "ACCEPTANCE_MODE_COUPLED":
        assert answer.tokens == alone(asked.sampling)
    assert answer.finished.stats.num_accepted_tokens > 0
    assert list(drafter.requests[0].shape.num_children) == [3, 1, 0, 0, 2]
    trees = [list(call.tree.parents) for call in verifier.requests]
    assert [0, 0, 0, 1, 4, 4] in trees


async def test_trees_of_another_target_are_not_used(connect, serve):
    verifier, drafter = Verifier(weights_digest="new"), Drafter()
    stub = await serve(await connect([verifier], [drafter]), defaults=given_trees("old"))
    await collect(stub.Generate(request(speculation={"width": 6, "shape": CALIBRATED})))
    assert all(call.HasField("growth") for call in drafter.requests)


async def test_a_drafter_that_knows_no_shapes_is_asked_for_a_chain(connect, serve):
    others = [each for each in ALL_FEATURES if each != model_pb2.MODEL_FEATURE_TREE_SHAPE]
    verifier, drafter = Verifier(weights_digest="ours"), Drafter(features=others)
    stub = await serve(await connect([verifier], [drafter]), defaults=given_trees("ours"))
    asked = request(speculation={"width": 6, "shape": CALIBRATED})
    answer = await collect(stub.Generate(asked))
    assert answer.tokens == alone(asked.sampling)
    assert not any(call.HasField("shape") for call in drafter.requests)
    for call in verifier.requests:
        assert list(call.tree.parents) == list(range(len(call.tree.token_ids)))


@pytest.mark.parametrize("strategy", ["tree", "branch-prediction"])
async def test_replicas_that_verify_chains_alone_are_sent_the_best_one(connect, serve, strategy):
    others = [each for each in ALL_FEATURES if each != model_pb2.MODEL_FEATURE_TREES]
    verifier = Verifier(features=others)
    stub = await serve(await connect([verifier], [Drafter(agreement=0.6)]))
    asked = request(speculation={"strategy": strategy, "width": 8, "lookahead": 3})
    answer = await collect(stub.Generate(asked))
    assert answer.tokens == alone(asked.sampling)
    assert any(call.tree.token_ids for call in verifier.requests)
    for call in verifier.requests:
        assert list(call.tree.parents) == list(range(len(call.tree.token_ids)))


async def test_an_idle_replica_that_verifies_trees_is_preferred_for_them(connect, serve):
    others = [each for each in ALL_FEATURES if each != model_pb2.MODEL_FEATURE_TREES]
    chains, trees = Verifier(features=others), Verifier()
    stub = await serve(await connect([chains, trees], [Drafter()]))
    asked = request(speculation={"strategy": "tree", "width": 8})
    answer = await collect(stub.Generate(asked))
    assert answer.tokens == alone(asked.sampling)
    parents = [list(call.tree.parents) for call in trees.requests]
    assert any(each != list(range(len(each))) for each in parents)
    for call in chains.requests:
        assert list(call.tree.parents) == list(range(len(call.tree.token_ids)))


def test_trees_of_a_fixed_shape_keep_the_law():
    """A root with three children, and two levels below the first of them."""
    goal = Goal(7, width=6, shape=CALIBRATED, calibrated_trees=CALIBRATED_TREES)
    scene = (goal, Capacity(), Chances(short_draft=0.1))
    counts: Counter[tuple[int, ...]] = Counter()
    for text, count in sample("tree", scene, (TARGET, DRAFTERS), num_samples=2_000).items():
        counts[text[:NUM_TOKENS]] += count
    assert excess(counts, exact_law(TARGET, Sampling())) < 1


def sample_second_children() -> Counter[tuple[int, ...]]:
    """Whether the second of two tokens is drafted as well depends on how sure the drafter is."""
    models = (by_position(0.5, 0.5), [by_position(0.8, 0.5)])
    capacity = Capacity(target_s=0.01, drafter_s=0.001, target_token_s=0.0005)
    return sample("tree", (Goal(2), capacity, Chances()), models, num_samples=2_500)


def test_second_children_do_not_tip_the_scales():
    assert excess_at(0, sample_second_children(), 0.5) < 1


def test_children_left_out_for_the_token_that_was_drawn_would_be_seen(monkeypatch):
    def without_unlikely(guesses, stop, growth, num_nodes):
        level = next_level(guesses, stop, TreeGrowth(growth.max_nodes, 0.0), num_nodes)
        return [
            tree_growth.Children(*keep_likely(guess.drawn, children))
            for guess, children in zip(guesses, level, strict=True)
        ]

    def keep_likely(drawn, children):
        sure = sibling_confidences(children.token_ids, None, drawn.distribution)
        kept = [n for n, each in enumerate(sure) if each > 0.6]
        return (
            tuple(children.token_ids[n] for n in kept),
            tuple(children.chances[n] for n in kept),
        )

    next_level = tree_growth.next_level
    monkeypatch.setattr("tests.orchestrator.world.next_level", without_unlikely)
    assert excess_at(0, sample_second_children(), 0.5) > 1
