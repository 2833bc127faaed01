"""DSI with a width: second choices beside the tokens of a chain."""

from __future__ import annotations

import numpy as np
import pytest
from tests.orchestrator.answers import alone, collect, request
from tests.orchestrator.peers import Drafter, Verifier
from tests.orchestrator.transcripts import drafted, verified

from specmesh.decoding.acceptance import Verdict
from specmesh.decoding.drafting import TopK
from specmesh.decoding.sampling import Distribution
from specmesh.decoding.trees.tree import TokenTree
from specmesh.orchestrator.strategies.base import Goal
from specmesh.orchestrator.strategies.commands import Cancel, Commit, Draft, NextDraft, Verify
from specmesh.orchestrator.strategies.dsi import DSI, NUM_CHOICES
from specmesh.orchestrator.strategies.events import Capacity, Verified

ALONE, CHAIN = 1, 2
"""The first tasks, as in ``test_dsi.py``."""
CHOICES = {
    0: TopK((7, 5), (0.9, 0.05), 0.4),
    1: TopK((8, 4), (0.6, 0.3), 0.9),
    2: TopK((9, 3), (0.8, 0.1), 0.6),
}


def begin(width: int | None, max_tokens: int = 20, **capacity: int) -> DSI:
    strategy = DSI(Goal(max_tokens, lookahead=3, width=width))
    commands = strategy.start(Capacity(num_verifiers=8, **capacity))
    assert commands[0].num_choices == (NUM_CHOICES if width else 0)
    return strategy


def sent(strategy: DSI, **also) -> Verify:
    """The verification of (7, 8, 9), task 3."""
    (verify,) = strategy.handle(drafted(CHAIN, 7, 8, 9, last=False, choices=CHOICES, **also))
    return verify


def test_second_choices_join_where_the_drafter_is_unsure():
    chain = TokenTree.chain((7, 8, 9))
    assert sent(begin(width=None)).tree == chain
    assert sent(begin(width=3)).tree == chain
    assert sent(begin(width=4)).tree == chain.extend((4,), (1,))
    assert sent(begin(width=9)).tree == chain.extend((4, 3, 5), (1, 2, 0))
    assert [sent(begin(width)).num_second_choices for width in (None, 3, 4, 9)] == [0, 0, 1, 3]


def test_second_choices_leave_room_for_the_answer():
    assert sent(begin(width=9, max_tokens=5)).tree == TokenTree((7, 8, 9, 4), (0, 1, 2, 1))


def test_in_rejection_mode_there_are_none():
    law = Distribution(np.array([7, 8, 9]), np.full(3, 1 / 3))
    verify = sent(begin(width=9), distributions=dict.fromkeys(range(3), law))
    assert verify.tree == TokenTree.chain((7, 8, 9))


def test_a_second_choice_that_the_target_says_brings_the_token_after_it():
    strategy = begin(width=4)
    sent(strategy)
    assert strategy.handle(verified(3, 1, 4, says=6)) == [
        *(Commit((7, 4, 6), 2), Cancel(CHAIN), Cancel(ALONE)),
        Draft(5, (), 16, num_choices=NUM_CHOICES),
        Verify(4, (), TokenTree((), ()), drafting_on=True),
    ]


def test_a_chain_whose_second_choices_are_wrong_as_well_ends_with_the_targets_own_token():
    strategy = begin(width=9)
    sent(strategy)
    event = Verified(3, Verdict((1,), 6, recovered=True))
    assert strategy.handle(event)[0] == Commit((7, 6), 1, recovered=True)


def two_blocks() -> DSI:
    """Waits for ALONE, for check 3 of (1, 2, 3) and for check 4 of (7, 8, 9) with 5 beside 7."""
    strategy = begin(width=5)
    strategy.handle(drafted(CHAIN, 1, 2, 3, last=False))
    second = {3: TopK((7, 5), (0.6, 0.3), 0.9)}
    tokens = drafted(CHAIN, 7, 8, 9, parent=3, last=False, choices=second)
    (verify,) = strategy.handle(tokens)
    assert verify.tree == TokenTree((7, 8, 9, 5), (0, 1, 2, 0))
    return strategy


def test_a_verification_goes_on_where_another_has_found_its_second_choice_right():
    strategy = two_blocks()
    assert strategy.handle(verified(3, 1, 2, 3, says=5)) == [
        *(Commit((1, 2, 3, 5), 3, recovered=True), Cancel(CHAIN), Cancel(ALONE)),
        Draft(5, (), 15, num_choices=NUM_CHOICES),
    ]
    tokens = drafted(5, 8, 9, 2, last=False)
    assert strategy.handle(tokens) == [Verify(6, (), TokenTree.chain((8, 9, 2)), drafting_on=True)]
    assert strategy.handle(verified(4, 4, says=8)) == [Commit((8,), 1)]


def test_a_verdict_on_a_second_choice_is_kept_until_it_is_its_turn():
    strategy = two_blocks()
    assert strategy.handle(verified(4, 4, says=6)) == []
    assert strategy.handle(verified(3, 1, 2, 3, says=5)) == [
        *(Commit((1, 2, 3, 5), 3, recovered=True), Cancel(CHAIN), Cancel(ALONE)),
        Commit((6,), 0),
        Draft(6, (), 14, num_choices=NUM_CHOICES),
        Verify(5, (), TokenTree((), ()), drafting_on=True),
    ]


def test_a_verification_ends_where_neither_choice_was_right():
    strategy = two_blocks()
    assert Cancel(4) in strategy.handle(verified(3, 1, 2, 3, says=6))


def test_second_choices_are_asked_of_heads_as_well():
    strategy = DSI(Goal(20, width=6, lookahead=2))
    *_, verify = strategy.start(Capacity(8, heads_depth=2))
    assert verify.next_draft == NextDraft(2, num_choices=NUM_CHOICES)
    tokens = drafted(ALONE, 4, 5, choices={0: TopK((4, 9), (0.6, 0.3), 0.9)})
    *_, verify = strategy.handle(Verified(ALONE, Verdict((), 6, recovered=False), tokens))
    assert verify.tree == TokenTree((4, 5, 9), (0, 1, 0))


@pytest.mark.parametrize("strategy", ["dsi", "branch-prediction"])
async def test_a_mesh_verifies_second_choices_and_says_what_the_target_would(
    connect, serve, strategy
):
    verifier, drafter = Verifier(heads_depth=6), Drafter(agreement=0.6)
    stub = await serve(await connect([verifier], [drafter]))
    for sampling in ({"temperature": 0}, {"temperature": 0.9, "seed": 4}):
        verifier.requests.clear()
        options = {"strategy": strategy, "width": 8}
        asked = request(sampling=sampling, speculation=options)
        answer = await collect(stub.Generate(asked))
        assert answer.tokens == alone(asked.sampling)
        parents = [list(call.tree.parents) for call in verifier.requests]
        assert any(each != list(range(len(each))) for each in parents)
        stats = answer.finished.stats
        assert 0 < stats.num_accepted_tokens <= stats.num_verified_tokens
        assert stats.num_verified_tokens <= stats.num_drafted_tokens
