"""The strategy `heads-and-drafter`: transcripts, meshes without either, and the law."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from tests.orchestrator.answers import alone, collect, request
from tests.orchestrator.peers import Drafter, Verifier
from tests.orchestrator.test_heads import DRAFTED, SAMPLINGS, WITHOUT_HEADS, says
from tests.orchestrator.test_strategy_rejection import by_position, excess_at, sample
from tests.orchestrator.transcripts import drafted, verified
from tests.orchestrator.world import Chances

from specmesh.decoding.acceptance import Verdict
from specmesh.decoding.predict.acceptance_rate import HEADS_LEVELS
from specmesh.decoding.trees.best_chain import BestChain
from specmesh.decoding.trees.merge import DrawnTree, merge
from specmesh.decoding.trees.tree import EMPTY, TokenTree
from specmesh.orchestrator.strategies import heads_and_drafter
from specmesh.orchestrator.strategies.base import Goal
from specmesh.orchestrator.strategies.commands import Cancel, Commit, Draft, Verify
from specmesh.orchestrator.strategies.events import Capacity, Drafted, Failed, Verified
from specmesh.orchestrator.strategies.heads_and_drafter import HeadsAndDrafter

MEASURED = Capacity(target_s=0.1, drafter_s=0.01, heads_s=0.01, target_token_s=0.002)
SLOW = Capacity(target_s=0.1, drafter_s=0.2, heads_s=0.01, target_token_s=0.002)


def begun(
    max_tokens: int = 40, capacity: Capacity = MEASURED, **options: int
) -> tuple[HeadsAndDrafter, Verify, Draft]:
    """A strategy, its first verification, task 1, and its first draft, task 2."""
    strategy = HeadsAndDrafter(Goal(max_tokens, **options))
    verify, draft = strategy.start(capacity)
    assert isinstance(verify, Verify)
    assert isinstance(draft, Draft)
    return strategy, verify, draft


def accepts(task: int, *nodes: int, then: int, brings: Drafted | None = None) -> Verified:
    return Verified(task, Verdict(nodes, then, recovered=False), brings)


def test_the_drafter_works_while_the_first_verification_brings_a_tree():
    _, verify, draft = begun()
    assert (verify.tree, verify.path) == (EMPTY, ())
    assert verify.next_draft is not None
    assert (draft.path, draft.tree) == ((), EMPTY)
    assert 1 < draft.depth <= 39


def test_one_verification_covers_what_both_have_drafted():
    strategy, _, _ = begun()
    assert strategy.handle(drafted(2, 4, 8, 6, last=False)) == []
    commit, verify = strategy.handle(says(1, 4, DRAFTED))
    assert commit == Commit((4,), 0)
    # 7, and 8 with 5 and 6 below: the chain first, since it was right about 4.
    assert verify.tree == TokenTree((8, 7, 6, 5, 9), (0, 0, 1, 1, 2))


def test_a_replica_that_verifies_chains_alone_is_sent_the_likelier_draft():
    """Of two drafts of one length that of whoever has been right so far."""
    for right in ((7, 9), (8, 6)):
        strategy, _, _ = begun()
        strategy.handle(drafted(2, 4, 8, 6, last=False))
        _, verify = strategy.handle(says(1, 4, DRAFTED))
        told = accepts(verify.task, *verify.tree.follow(right), then=1)
        _, *commands = strategy.handle(told)
        draft = next(each for each in commands if isinstance(each, Draft))
        strategy.handle(drafted(draft.task, 2, 8, 6, last=False))
        verify = next(each for each in commands if isinstance(each, Verify))
        _, verify, *_ = strategy.handle(says(verify.task, 2, DRAFTED))
        assert BestChain.of(verify.tree, {}).tree.token_ids == right


def test_a_chain_that_is_right_is_drafted_on():
    strategy, _, _ = begun()
    strategy.handle(drafted(2, 4, 8, 6, last=False))
    _, verify = strategy.handle(says(1, 4, DRAFTED))
    assert strategy.handle(drafted(2, 1, 3, parent=3, last=False)) == []
    commit, verify = strategy.handle(accepts(verify.task, 1, 3, then=1))
    assert commit == Commit((8, 6, 1), 2)
    assert verify.tree == TokenTree.chain((3,))


def test_a_chain_that_has_come_to_its_end_goes_on_in_another_draft():
    strategy, _, _ = begun()
    strategy.handle(drafted(2, 4, 8, 6))
    _, verify, draft = strategy.handle(says(1, 4, DRAFTED))
    assert verify.tree == TokenTree((8, 7, 6, 5, 9), (0, 0, 1, 1, 2))
    assert draft.path == (8, 6)


def test_a_wrong_chain_is_cancelled_at_once_and_begins_anew():
    strategy, _, _ = begun()
    strategy.handle(drafted(2, 4, 8, 6, last=False))
    commit, cancel, verify, draft = strategy.handle(says(1, 5, DRAFTED))
    assert (commit, cancel) == (Commit((5,), 0), Cancel(2))
    assert verify.tree == TokenTree(DRAFTED.token_ids, DRAFTED.parents)
    assert draft.path == ()
    assert strategy.handle(drafted(2, 1, parent=3)) == []


def test_a_chain_that_the_target_has_overtaken_begins_anew():
    strategy, _, _ = begun()
    strategy.handle(drafted(2, 4, last=False))
    _, verify = strategy.handle(says(1, 4, DRAFTED))
    commit, cancel, verify, draft = strategy.handle(accepts(verify.task, 1, then=2))
    assert commit == Commit((7, 2), 1)
    assert (cancel, verify.tree, draft.path) == (Cancel(2), EMPTY, ())


def test_as_much_is_verified_as_the_request_has_width_and_lookahead_for():
    strategy, _, draft = begun(lookahead=2, width=4)
    assert draft.depth == 5
    strategy.handle(drafted(2, 4, 8, 6, 1, 3))
    _, verify, *_ = strategy.handle(says(1, 4, DRAFTED))
    assert verify.tree == TokenTree((8, 7, 6, 5), (0, 0, 1, 1))
    strategy, _, _ = begun(lookahead=2)
    strategy.handle(drafted(2, 4, 8, 6, 1, 3))
    _, verify, *_ = strategy.handle(says(1, 4, DRAFTED))
    assert verify.tree == TokenTree((8, 7, 6, 5, 9), (0, 0, 1, 1, 2))


def test_neither_drafts_more_than_the_answer_has_room_for():
    strategy, _, draft = begun(max_tokens=4)
    assert draft.depth == 3
    strategy.handle(drafted(2, 4, 8, 6))
    _, verify = strategy.handle(says(1, 4, DRAFTED))
    assert verify.tree == TokenTree((8, 7), (0, 0))
    strategy = HeadsAndDrafter(Goal(1))
    (verify,) = strategy.start(MEASURED)
    assert verify.next_draft is None


def test_what_a_drafter_has_no_time_for_is_not_drafted_but_now_and_then():
    strategy = HeadsAndDrafter(Goal(400))
    commands = strategy.start(SLOW)
    num_drafts = 0
    for _ in range(300):
        verify = next(each for each in commands if isinstance(each, Verify))
        for each in commands:
            if isinstance(each, Draft):
                num_drafts += 1
                assert each.depth == 1
                strategy.handle(drafted(each.task, 9))
        commands = strategy.handle(says(verify.task, 4))
    assert 0 < num_drafts <= 30


def test_a_mesh_that_has_no_drafter_is_asked_for_one_draft():
    strategy, _, _ = begun(capacity=Capacity(target_s=0.1, heads_s=0.01))
    assert strategy.handle(Failed(2)) == []
    _, verify = strategy.handle(says(1, 4, DRAFTED))
    assert verify.tree == TokenTree(DRAFTED.token_ids, DRAFTED.parents)
    strategy.handle(MEASURED)
    *_, draft = strategy.handle(says(verify.task, 4, DRAFTED))
    assert isinstance(draft, Draft)
    (verify,) = HeadsAndDrafter(Goal(20)).start(Capacity(drafters=()))
    assert isinstance(verify, Verify)


def test_a_draft_that_fails_leaves_what_it_has_brought():
    strategy, _, _ = begun()
    strategy.handle(drafted(2, 4, 8, 6, last=False))
    assert strategy.handle(Failed(2)) == []
    _, verify, draft = strategy.handle(says(1, 4))
    assert verify.tree == TokenTree.chain((8, 6))
    assert draft.path == (8, 6)


async def answers_of(connect, serve, verifiers: Sequence[Verifier], drafters: Sequence[Drafter]):
    """Held to what the target alone says."""
    stub = await serve(await connect(verifiers, drafters))
    answers = []
    for sampling in SAMPLINGS:
        asked = request(sampling=sampling, speculation={"strategy": "heads-and-drafter"})
        answers.append(await collect(stub.Generate(asked)))
        assert answers[-1].tokens == alone(asked.sampling)
    return answers


async def test_heads_and_a_drafter_answer_like_the_target_alone(connect, serve):
    verifier, drafter = Verifier(), Drafter(agreement=0.9)
    answers = await answers_of(connect, serve, [verifier], [drafter])
    assert drafter.requests
    assert all(answer.finished.stats.num_accepted_tokens > 0 for answer in answers)
    assert len(verifier.requests) < sum(len(answer.tokens) for answer in answers)


async def test_without_a_drafter_the_heads_are_enough(connect, serve):
    answers = await answers_of(connect, serve, [Verifier()], [])
    assert all(answer.finished.stats.num_accepted_tokens > 0 for answer in answers)


async def test_replicas_without_heads_leave_the_chain(connect, serve):
    verifiers = [Verifier(), Verifier(features=WITHOUT_HEADS)]
    await answers_of(connect, serve, verifiers, [Drafter(agreement=0.9)])


def sample_merged() -> Counter[tuple[int, ...]]:
    """The chain mostly stands, and the heads are wrong about what follows."""
    drafter, heads = by_position(0.97, 0.5, 0.5), by_position(0.97, 0.9, 0.9)
    capacity = Capacity(target_s=0.01, drafter_s=0.001, heads_s=0.001, target_token_s=0.0005)
    scene = Goal(3), capacity, Chances(quick_draft=0.98)
    return sample("heads-and-drafter", scene, (drafter, [drafter, heads]), num_samples=800)


def test_two_sources_do_not_tip_the_scales():
    counts = sample_merged()
    assert all(excess_at(position, counts, 0.5) < 1 for position in (1, 2))


def test_a_source_that_is_chosen_for_what_it_has_drawn_would_be_seen(monkeypatch):
    def picky(drafts: Sequence[DrawnTree], max_nodes: int) -> DrawnTree:
        heads, chain = drafts
        agree = chain.tree.token_ids[:1] == (0,)
        return merge([chain, heads] if agree else [heads, chain], max_nodes)

    monkeypatch.setattr(heads_and_drafter, "merge", picky)
    assert excess_at(1, sample_merged(), 0.5) > 1


NO_HEADS = Capacity(target_s=0.1, drafter_s=0.08)
"""At most one token is drafted during a verification, and that one is for the same position."""


def test_without_heads_a_chain_that_comes_too_late_leaves_the_target_to_decode_on():
    strategy = HeadsAndDrafter(Goal(1_000))
    (begun,) = strategy.start(NO_HEADS)
    assert begun == Verify(1, (), EMPTY, num_further=20, may_wait=True)
    while (commands := strategy.handle(verified(1, says=7, more=True))) == [Commit((7,), 0)]:
        pass
    # Now and then a draft tells whether that has changed.
    assert commands == [Commit((7,), 0), Cancel(1), Verify(2, (), EMPTY), Draft(3, (), 1)]


def test_without_heads_a_chain_that_pays_is_drafted_meanwhile():
    strategy = HeadsAndDrafter(Goal(1_000))
    strategy.start(NO_HEADS)
    strategy.handle(Capacity(target_s=0.1, drafter_s=0.03))
    commit, cancel, verify, draft = strategy.handle(verified(1, says=7, more=True))
    assert (commit, cancel, verify) == (Commit((7,), 0), Cancel(1), Verify(2, (), EMPTY))
    assert isinstance(draft, Draft)
    assert draft.depth > 1


def test_a_trial_of_the_heads_does_not_set_the_drafter_going():
    goal = Goal(10_000)
    goal.acceptance.rate(HEADS_LEVELS).learn([False] * 5_000)
    strategy = HeadsAndDrafter(goal)
    slow = replace(NO_HEADS, drafter_s=0.06, target_token_s=0.02)
    strategy.start(replace(slow, heads_s=0.02, heads_depth=4))
    trials, task = [], 1
    for _ in range(3_000):
        for command in strategy.handle(verified(task, says=7, more=True)):
            if isinstance(command, Verify):
                task = command.task
                trials.append(command.next_draft is not None)
            assert not isinstance(command, Draft) or command.depth == 1
    assert any(trials)
