"""DSI on a target with heads: what a rejection leaves to verify."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from tests.orchestrator.answers import alone, collect, request
from tests.orchestrator.peers import Drafter, Verifier
from tests.orchestrator.test_strategy_rejection import by_position, excess_at, sample
from tests.orchestrator.transcripts import drafted, verified
from tests.orchestrator.world import Chances

from specmesh.decoding.acceptance import Verdict
from specmesh.decoding.bonus import Bonus
from specmesh.decoding.errors import InvalidField
from specmesh.decoding.sampling import Distribution, Sampling
from specmesh.decoding.trees.tree import TokenTree
from specmesh.mesh.v1alpha1 import drafter_pb2, verifier_pb2
from specmesh.orchestrator.replicas.calls.verify.next_drafts import read_next_draft
from specmesh.orchestrator.strategies.base import Goal
from specmesh.orchestrator.strategies.chains.reach import best_heads_depth
from specmesh.orchestrator.strategies.chains.verifications import InFlightVerification
from specmesh.orchestrator.strategies.commands import Cancel, Commit, Draft, NextDraft, Verify
from specmesh.orchestrator.strategies.dsi import DSI
from specmesh.orchestrator.strategies.events import Capacity, Verified

ALONE, CHAIN = 1, 2
"""The first tasks, as in ``test_dsi.py``."""
DEPTH = 2


def begin(max_tokens: int = 20, *, num_verifiers: int = 8) -> DSI:
    strategy = DSI(Goal(max_tokens, lookahead=3))
    strategy.start(Capacity(num_verifiers, heads_depth=DEPTH))
    return strategy


def check(task: int, *tokens: int, path: tuple[int, ...] = (), depth: int = DEPTH) -> Verify:
    tree, asked = TokenTree.chain(tokens), NextDraft(depth) if depth else None
    return Verify(task, path, tree, drafting_on=True, next_draft=asked)


def draft(task: int, depth: int, path: tuple[int, ...] = ()) -> Draft:
    return Draft(task, path, depth)


def brings(event: Verified, *tokens: int, **also) -> Verified:
    """``event`` with what heads have drafted."""
    return Verified(event.task, event.verdict, drafted(event.task, *tokens, **also))


def test_every_verification_asks_heads_for_a_chain_and_none_does_without_heads():
    strategy = DSI(Goal(20, lookahead=3))
    assert strategy.start(Capacity(8, heads_depth=DEPTH)) == [draft(2, 19), check(ALONE)]
    assert strategy.handle(drafted(CHAIN, 7, 8, 9, last=False)) == [check(3, 7, 8, 9)]
    strategy = DSI(Goal(20, lookahead=3))
    assert strategy.start(Capacity(8)) == [draft(2, 19), check(ALONE, depth=0)]


def test_after_a_rejection_the_chain_of_heads_is_verified_and_the_drafter_drafts_what_follows_it():
    strategy = begin()
    strategy.handle(drafted(CHAIN, 7, 8, 9, last=False))
    assert strategy.handle(brings(verified(ALONE, says=6), 4, 5)) == [
        *(Commit((6,), 0, recovered=True), Cancel(CHAIN), Cancel(3)),
        *(draft(5, 18), check(4, 4, 5)),
    ]
    assert strategy.handle(verified(4, 1, 2, says=3)) == [
        *(Commit((4, 5, 3), 2), Cancel(5)),
        *(draft(7, 15), check(6)),
    ]


def test_what_the_drafter_has_in_common_with_heads_is_verified_once():
    strategy = begin()
    strategy.handle(brings(verified(ALONE, says=6), 4, 5))  # draft 4, check 3 of (4, 5)
    assert strategy.handle(drafted(4, 4, 5, 1, last=False)) == []
    assert strategy.handle(drafted(4, 2, 3, parent=3, last=False)) == [
        check(5, 1, 2, 3, path=(4, 5))
    ]


def test_heads_are_not_heard_where_a_chain_stands():
    strategy = begin()
    strategy.handle(drafted(CHAIN, 7, 8, 9, last=False))  # check 3
    assert strategy.handle(brings(verified(ALONE, says=7), 8, 1)) == [Commit((7,), 1)]


def test_a_drafter_that_is_ahead_goes_before_heads():
    strategy = begin(num_verifiers=1)
    strategy.handle(drafted(CHAIN, 7, 8, last=False))
    assert strategy.handle(brings(verified(ALONE, says=7), 1, 2)) == [Commit((7,), 1), check(3, 8)]


def test_a_verdict_kept_for_later_keeps_its_draft():
    strategy = begin()
    strategy.handle(drafted(CHAIN, 7, 8, 9, last=False))
    strategy.handle(drafted(CHAIN, 10, 11, 12, parent=3, last=False))
    assert strategy.handle(brings(verified(4, 1, says=5), 1, 2)) == []
    assert strategy.handle(verified(3, 1, 2, 3, says=10)) == [
        *(Commit((7, 8, 9, 10), 4), Cancel(ALONE)),
        *(Commit((5,), 0, recovered=True), Cancel(CHAIN)),
        *(draft(6, 14), check(5, 1, 2)),
    ]


def test_a_draft_of_nothing_is_verified_as_without_heads():
    strategy = begin()
    expected = [Commit((6,), 0), Cancel(CHAIN), draft(4, 18), check(3)]
    assert strategy.handle(brings(verified(ALONE, says=6))) == expected


def test_nothing_of_heads_goes_beyond_the_answer():
    strategy = begin(4)
    strategy.handle(drafted(CHAIN, 7, last=False))
    # Of four tokens the last is the target's, and one comes before the draft.
    assert strategy.handle(brings(verified(ALONE, says=6), 1, 2)) == [
        *(Commit((6,), 0), Cancel(CHAIN)),
        *(draft(4, 2), check(3, 1, 2, depth=1)),
    ]
    assert strategy.handle(brings(verified(3, 1, says=5), 8)) == [
        *(Commit((1, 5), 1, recovered=True), Cancel(4)),
        check(5, depth=0),
    ]


LAW = Distribution(np.array([4, 6]), np.array([0.5, 0.5]))


def test_in_rejection_mode_distributions_of_heads_go_with_their_tokens():
    strategy = begin()
    *_, verify = strategy.handle(
        brings(verified(ALONE, says=6), 4, 4, distributions={0: LAW, 1: LAW})
    )
    assert (verify.tree, verify.distributions) == (TokenTree.chain((4, 4)), {0: LAW, 1: LAW})


def test_heads_are_not_heard_if_a_draft_token_has_replaced_the_one_they_follow():
    strategy = begin()
    strategy.handle(drafted(CHAIN, 4, last=False, distributions={0: LAW}))
    certain = Bonus(1, 1, np.array([4]), np.ones(1))
    verdict = Verdict((), 6, recovered=False, bonus=certain)
    event = Verified(ALONE, verdict, drafted(ALONE, 8, 8, distributions={0: LAW, 1: LAW}))
    assert strategy.handle(event) == [Commit((4,), 1), check(3)]


@pytest.mark.parametrize(
    ("beta", "alpha", "level_s", "depth"),
    [
        (0.9, 0.0, 0.0, 8),  # for nothing, as deep as can be
        (0.5, 0.0, 0.2, 2),  # without a drafter, until a level costs more than it is right: 1/4
        (0.5, 0.9, 0.02, 0),  # the drafter is right before they are
        (0.7, 0.8, 0.01, 8),
        (0.7, 0.8, 0.07, 0),
    ],
)
def test_heads_draft_as_deep_as_they_save_time(beta, alpha, level_s, depth):
    token_s = 1 - alpha + 0.05
    assert best_heads_depth(beta, alpha, level_s=level_s, token_s=token_s, limit=8) == depth


def test_heads_that_are_never_right_are_only_tried_now_and_then():
    strategy = DSI(Goal(2_000))
    capacity = Capacity(target_s=0.1, drafter_s=0.2, heads_s=0.02, heads_depth=5)
    *_, verify = strategy.start(capacity)
    asked = []
    while verify.task < 2_000:
        event = verified(verify.task, says=6)
        if verify.next_draft is not None:
            event = brings(event, 4)
        asked.append(verify.next_draft is not None)
        *_, verify = strategy.handle(event)
    assert asked[0]
    assert sum(asked[100:]) / len(asked[100:]) == pytest.approx(0.01 * 0.1 / 0.02, abs=0.01)


async def test_a_mesh_with_heads_and_a_drafter_says_what_the_target_would(connect, serve):
    for agreement, sampling in [(0.0, {"temperature": 0}), (0.5, {"temperature": 0.9, "seed": 4})]:
        verifier, drafter = Verifier(heads_depth=6), Drafter(agreement=agreement)
        stub = await serve(await connect([verifier], [drafter]))
        asked = request(sampling=sampling, speculation={"strategy": "dsi"})
        answer = await collect(stub.Generate(asked))
        assert answer.tokens == alone(asked.sampling)
        assert answer.finished.stats.num_accepted_tokens > 0
        assert verifier.requests[0].next_draft.depth > 0


def test_a_tree_where_a_chain_was_asked_for_is_no_draft():
    response = verifier_pb2.VerifyResponse(
        next_draft=drafter_pb2.DraftResponse(token_ids=[4, 5], parents=[0, 0])
    )
    with pytest.raises(InvalidField, match="chain"):
        read_next_draft(response, check(ALONE), Sampling(temperature=0), vocab_size=10)
    response.next_draft.parents[1] = 1
    read = read_next_draft(response, check(ALONE), Sampling(temperature=0), vocab_size=10)
    assert read == drafted(ALONE, 4, 5)


def sample_heads_alone() -> Counter[tuple[int, ...]]:
    """The drafter is slower than the target, so what is drafted comes from heads."""
    capacity = Capacity(num_verifiers=2, target_s=0.1, drafter_s=0.2, heads_depth=2)
    models = (by_position(0.5), [by_position(0.6)])
    return sample("dsi", (Goal(3), capacity, Chances()), models, num_samples=400)


def test_what_heads_draw_does_not_tip_the_scales():
    assert excess_at(1, sample_heads_alone(), 0.5) < 1


def test_hearing_heads_only_where_they_say_the_likelier_would_be_seen(monkeypatch):
    def take_in(self: DSI, check: InFlightVerification) -> None:
        if check.next_draft is not None and check.next_draft.token_ids[:1] == (0,):
            unbiased(self, check)

    unbiased = DSI._take_in_heads
    monkeypatch.setattr(DSI, "_take_in_heads", take_in)
    assert excess_at(1, sample_heads_alone(), 0.5) > 1
