"""Transcripts of branch prediction: events in, commands out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.orchestrator.transcripts import drafted, verified

from specmesh.decoding.acceptance import Verdict
from specmesh.decoding.bonus import Bonus
from specmesh.decoding.drafting import TopK
from specmesh.decoding.predict.acceptance_rate import (
    PRIOR_ALPHA,
    AcceptanceRate,
    MeshAcceptance,
)
from specmesh.decoding.predict.predictors import PREDICTORS, AlwaysAll, DraftOutcome
from specmesh.decoding.predict.round_costs import RoundCosts
from specmesh.decoding.sampling import Distribution
from specmesh.decoding.trees.tree import EMPTY, TokenTree
from specmesh.orchestrator.strategies.base import Goal
from specmesh.orchestrator.strategies.branch_prediction import (
    MAX_DEPTH,
    MAX_NODES,
    NUM_CHOICES,
    BranchPrediction,
    Exhaustive,
)
from specmesh.orchestrator.strategies.chains.dsi_rate import IN_VAIN
from specmesh.orchestrator.strategies.commands import (
    Cancel,
    Commit,
    Draft,
    Finish,
    GiveUp,
    StopReason,
    Verify,
)
from specmesh.orchestrator.strategies.events import Capacity, Failed, Verified

END = 90
SURE = {n: TopK((7 + n, 5 - n), (0.9, 0.1), 0.33) for n in range(3)}
"""Of a drafter that says 7, 8, 9 and thinks of 5, 4 and 3 instead."""


def first_draft(task: int, depth: int) -> Draft:
    """From the verified point: nothing to overlap with, so it comes in one piece."""
    return Draft(task, (), depth, levels_per_message=depth, num_choices=NUM_CHOICES)


def branches(task: int, depth: int, tree: TokenTree, *from_nodes: int) -> Draft:
    return Draft(task, (), depth, tree=tree, from_nodes=from_nodes, num_choices=NUM_CHOICES)


def check(task: int, *tokens: int) -> Verify:
    return Verify(task, (), TokenTree.chain(tokens), drafting_on=True)


def chain_and(guesses: dict[int, int], *tokens: int) -> TokenTree:
    """The chain of ``tokens``, then a leaf with each guess below its node."""
    return TokenTree.chain(tokens).extend((*guesses.values(),), (*guesses,))


def begin(max_tokens: int = 20, *, predictor: str = "always-all", **goal: int) -> BranchPrediction:
    """Waits for its first draft, task 1, of 3 tokens."""
    goal = {"lookahead": 3, **goal}
    strategy = BranchPrediction(Goal(max_tokens, frozenset({END}), predictor=predictor, **goal))
    strategy.start(Capacity())
    return strategy


def expect_all(max_tokens: int = 20) -> BranchPrediction:
    """Waits for check 2 of (7, 8, 9) and for draft 3 from the end of it, node 3."""
    strategy = begin(max_tokens)
    strategy.handle(drafted(1, 7, 8, 9))
    return strategy


def expect_none() -> BranchPrediction:
    """Waits for check 2 of (7, 8, 9) and for draft 3 from 5 in the place of 7, node 4."""
    strategy = begin(predictor="always-none")
    expected = [check(2, 7, 8, 9), branches(3, 3, chain_and({0: 5}, 7, 8, 9), 4)]
    assert strategy.handle(drafted(1, 7, 8, 9, choices=SURE)) == expected
    return strategy


def test_first_draft_comes_in_one_piece():
    strategy = BranchPrediction(Goal(20, lookahead=3))
    assert strategy.start(Capacity()) == [first_draft(1, 3)]


def test_drafter_goes_on_while_the_target_verifies():
    strategy = begin()
    expected = [check(2, 7, 8, 9), branches(3, 3, TokenTree.chain((7, 8, 9)), 3)]
    assert strategy.handle(drafted(1, 7, 8, 9, choices=SURE)) == expected


def test_right_branch_goes_on_without_a_new_draft():
    strategy = expect_all()
    assert strategy.handle(drafted(3, 10, 11, parent=3, last=False)) == []
    assert strategy.handle(verified(2, 1, 2, 3, says=10)) == [Commit((7, 8, 9, 10), 3)]
    # The bonus token was the branch's first; the rest is the next run.
    expected = [check(4, 11, 12), branches(5, 3, TokenTree.chain((11, 12)), 2)]
    assert strategy.handle(drafted(3, 12, parent=5)) == expected


def test_branch_that_is_long_enough_is_verified_at_once():
    strategy = expect_none()
    strategy.handle(drafted(3, 6, 2, 1, parent=4))
    assert strategy.handle(verified(2, says=5)) == [
        *(Commit((5,), 0), check(4, 6, 2, 1)),
        # No choices came with them, so nothing is known to expect.
    ]


def test_right_branch_without_its_first_token_is_no_branch_yet():
    strategy = expect_all()
    expected = [Commit((7, 8, 9, 10), 3), Cancel(3), first_draft(4, 3)]
    assert strategy.handle(verified(2, 1, 2, 3, says=10)) == expected


@pytest.mark.parametrize(
    ("accepted", "says"), [((1, 2, 3), 6), ((1, 2), 10), ((), 10)], ids=["bonus", "last", "first"]
)
def test_wrong_branch_is_cancelled_and_the_draft_starts_over(accepted, says):
    strategy = expect_all()
    strategy.handle(drafted(3, 10, 11, parent=3, last=False))
    tokens = ((7, 8, 9)[: len(accepted)], says)
    expected = [Commit((*tokens[0], says), len(accepted)), Cancel(3), first_draft(4, 3)]
    assert strategy.handle(verified(2, *accepted, says=says)) == expected
    assert strategy.handle(drafted(3, 12, parent=5)) == []


def test_draft_that_has_ended_needs_no_cancelling():
    strategy = expect_all()
    strategy.handle(drafted(3, 10, 11, 12, parent=3))
    expected = [Commit((6,), 0), first_draft(4, 3)]
    assert strategy.handle(verified(2, says=6)) == expected


def test_rejected_token_must_be_followed_by_the_guess():
    strategy = expect_none()
    strategy.handle(drafted(3, 6, 2, 1, parent=4))
    assert strategy.handle(verified(2, says=4)) == [Commit((4,), 0), first_draft(4, 3)]


def test_guess_counts_only_in_its_own_place():
    strategy = expect_none()
    strategy.handle(drafted(3, 6, 2, 1, parent=4))
    assert strategy.handle(verified(2, 1, says=5)) == [Commit((7, 5), 1), first_draft(4, 3)]


def test_several_branches_grow_as_one_batch_the_likeliest_first():
    strategy = begin(predictor="phi", num_branches=3)
    choices = {0: TopK((7, 5, 6), (0.5, 0.3, 0.2), 1.03), 1: TopK((8,), (0.9,), 0.5)}
    commands = strategy.handle(drafted(1, 7, 8, 9, choices=choices))
    # phi of 3 tokens at 0.7: all 0.343, none 0.3; of those 3 : 2.
    tree = chain_and({0: 5}, 7, 8, 9).extend((6,), (0,))
    assert commands == [check(2, 7, 8, 9), branches(3, 3, tree, 3, 4, 5)]


def test_each_of_several_branches_may_be_right():
    for says, run in ((5, (21, 22, 23)), (6, (31, 32, 33))):
        strategy = begin(predictor="phi", num_branches=3)
        choices = {0: TopK((7, 5, 6), (0.5, 0.3, 0.2), 1.03)}
        strategy.handle(drafted(1, 7, 8, 9, choices=choices))
        for level in range(3):
            tokens = (10 + level, 21 + level, 31 + level)
            parents = (3, 4, 5) if level == 0 else tuple(range(3 + 3 * level, 6 + 3 * level))
            event = drafted(3, *tokens, last=level == 2)
            strategy.handle(type(event)(3, tokens, parents, {}, last=level == 2))
        commit, verify, *_ = strategy.handle(verified(2, says=says))
        assert (commit, verify) == (Commit((says,), 0), check(4, *run))


def test_exhaustive_drafts_on_from_every_outcome():
    strategy = Exhaustive(Goal(20, lookahead=3, predictor="phi"))
    strategy.start(Capacity())
    _, draft = strategy.handle(drafted(1, 7, 8, 9, choices=SURE))
    assert isinstance(draft, Draft)
    leaves = zip(draft.tree.token_ids[3:], draft.tree.parents[3:], strict=True)
    assert set(leaves) == {(5, 0), (4, 1), (3, 2)}
    assert set(draft.from_nodes) == {3, 4, 5, 6}


def test_exhaustive_drafts_are_bounded():
    goal = Goal(500, lookahead=64, predictor="phi")
    strategy = Exhaustive(goal)
    strategy.start(Capacity())
    choices = {n: TopK((n, 97, 98, 99), (0.4, 0.3, 0.2, 0.1), 1.28) for n in range(64)}
    _, draft = strategy.handle(drafted(1, *range(64), choices=choices))
    assert isinstance(draft, Draft)
    assert len(draft.from_nodes) * draft.depth <= MAX_NODES


def test_number_of_branches_asked_for_counts():
    for asked, expected in ((None, 1), (1, 1), (2, 2), (4, 4), (9, 4)):
        strategy = BranchPrediction(Goal(20, lookahead=3, num_branches=asked, predictor="phi"))
        strategy.start(Capacity())
        _, draft = strategy.handle(drafted(1, 7, 8, 9, choices=SURE))
        assert isinstance(draft, Draft)
        assert len(draft.from_nodes) == expected


def test_without_choices_only_full_acceptance_can_be_drafted_on():
    strategy = begin(predictor="phi", num_branches=4)
    expected = [check(2, 7, 8, 9), branches(3, 3, TokenTree.chain((7, 8, 9)), 3)]
    assert strategy.handle(drafted(1, 7, 8, 9)) == expected


def test_without_choices_an_expected_rejection_leaves_nothing_to_draft():
    strategy = begin(predictor="always-none")
    assert strategy.handle(drafted(1, 7, 8, 9)) == [check(2, 7, 8, 9)]
    assert strategy.handle(verified(2, says=5)) == [Commit((5,), 0), first_draft(3, 3)]


def test_choices_that_are_only_the_token_itself_give_no_guess():
    strategy = begin(predictor="always-none")
    alone = {n: TopK((7 + n,), (1.0,), 0.0) for n in range(3)}
    assert strategy.handle(drafted(1, 7, 8, 9, choices=alone)) == [check(2, 7, 8, 9)]


def test_first_draft_is_as_long_as_plain_speculation_would_have_it():
    strategy = BranchPrediction(Goal(20))
    capacity = Capacity(target_s=0.1, drafter_s=0.01)
    best = RoundCosts(0.1, 0.01, 0.0, alone_s=0.1).best_depth(PRIOR_ALPHA, 10)
    assert strategy.start(capacity) == [first_draft(1, best)]
    strategy.handle(drafted(1, *range(best)))
    acceptance = MeshAcceptance().rate()
    acceptance.learn([False])
    shorter = RoundCosts(0.1, 0.01, 0.0, alone_s=0.1).best_depth(acceptance.alpha, 10)
    assert shorter < best
    assert strategy.handle(verified(2, says=50))[-1] == first_draft(4, shorter)


def test_branches_grow_for_as_long_as_a_verification_takes():
    """Equation 14: 0.1 / 0.03 = 3.3 tokens."""
    strategy = BranchPrediction(Goal(20, lookahead=2, predictor="always-all"))
    strategy.start(Capacity(target_s=0.1, drafter_s=0.03))
    expected = [check(2, 7, 8), branches(3, 4, TokenTree.chain((7, 8)), 2)]
    assert strategy.handle(drafted(1, 7, 8)) == expected
    strategy.handle(drafted(3, 9, 10, 11, 12, parent=2))
    expected = [Commit((7, 8, 9), 2), check(4, 10, 11, 12)]
    assert strategy.handle(verified(2, 1, 2, says=9))[:2] == expected


def test_length_follows_the_capacity():
    strategy = BranchPrediction(Goal(20, predictor="always-all"))
    assert strategy.start(Capacity()) == [first_draft(1, 1)]
    strategy.handle(drafted(1, 7, 8, 9, 10))
    assert strategy.handle(Capacity(target_s=0.1, drafter_s=0.04)) == []
    expected = [Commit((1,), 0), Cancel(3), first_draft(4, 1)]
    assert strategy.handle(verified(2, says=1)) == expected
    _, branch = strategy.handle(drafted(4, 2))
    assert branch == branches(6, 3, TokenTree.chain((2,)), 1)


def test_where_waiting_for_a_draft_does_not_pay_it_is_made_meanwhile():
    strategy = BranchPrediction(Goal(20, predictor="always-all"))
    expected = [check(1), branches(2, 4, EMPTY, 0)]
    capacity = Capacity(target_s=0.1, drafter_s=0.03, target_token_s=0.05)
    assert strategy.start(capacity) == expected
    assert strategy.handle(drafted(2, 7, last=False)) == []
    assert strategy.handle(verified(1, says=7)) == [
        *(Commit((7,), 0), Cancel(2), check(3), branches(4, 4, EMPTY, 0))
    ]


SLOW_DRAFTER = Capacity(target_s=0.1, drafter_s=0.08)
"""At most one token is drafted during a verification, and that one is for the same position."""


def decodes_on(task: int) -> Verify:
    return Verify(task, (), EMPTY, num_further=20, may_wait=True)


@pytest.mark.parametrize("drafter_s", [0.08, 0.12])
def test_drafter_that_is_too_slow_is_only_tried_now_and_then(drafter_s):
    strategy = BranchPrediction(Goal(1_000))
    assert strategy.start(replace(SLOW_DRAFTER, drafter_s=drafter_s)) == [decodes_on(1)]
    task, num_drafts = 1, 0
    for _ in range(600):
        commands = strategy.handle(verified(task, says=7))
        task = next(each.task for each in commands if isinstance(each, Verify))
        drafts = [each for each in commands if isinstance(each, Draft)]
        assert all(each.depth == 1 for each in drafts)
        num_drafts += len(drafts)
    assert num_drafts == 600 * 0.01 // (drafter_s / 0.1)


def test_the_target_decodes_on_until_a_draft_is_tried():
    strategy = BranchPrediction(Goal(1_000))
    strategy.start(SLOW_DRAFTER)
    while (commands := strategy.handle(verified(1, says=7, more=True))) == [Commit((7,), 0)]:
        pass
    assert commands == [Commit((7,), 0), Cancel(1), check(2), branches(3, 1, EMPTY, 0)]
    # The next token was on its way.
    assert strategy.handle(verified(1, says=8, more=True)) == []
    assert strategy.handle(verified(2, says=8)) == [Commit((8,), 0), Cancel(3), decodes_on(4)]


def test_a_drafter_that_has_become_quick_ends_the_decoding_on():
    strategy = BranchPrediction(Goal(1_000))
    strategy.start(SLOW_DRAFTER)
    strategy.handle(replace(SLOW_DRAFTER, drafter_s=0.01))
    commit, cancel, draft = strategy.handle(verified(1, says=7, more=True))
    assert (commit, cancel) == (Commit((7,), 0), Cancel(1))
    assert isinstance(draft, Draft)


def test_the_target_decodes_on_to_the_end_of_the_answer():
    strategy = BranchPrediction(Goal(3))
    assert strategy.start(SLOW_DRAFTER) == [Verify(1, (), EMPTY, num_further=2, may_wait=True)]
    for _ in range(2):
        assert strategy.handle(verified(1, says=7, more=True)) == [Commit((7,), 0)]
    assert strategy.handle(verified(1, says=7))[-1] == Finish(StopReason.LENGTH)


def test_no_more_of_a_branch_is_verified_than_is_worth_it():
    """A token costs a tenth of a verification."""
    strategy = BranchPrediction(Goal(99, predictor="always-all"))
    capacity = Capacity(target_s=0.1, drafter_s=0.01, target_token_s=0.01)
    (first,) = strategy.start(capacity)
    strategy.handle(drafted(1, *range(first.depth)))
    strategy.handle(drafted(3, *range(20, 30), parent=first.depth))
    commands = strategy.handle(verified(2, *range(1, first.depth + 1), says=20))
    verify = next(each for each in commands if isinstance(each, Verify))
    acceptance = MeshAcceptance().rate()
    acceptance.learn([True] * (first.depth + 1))
    assert verify == check(4, *range(21, 30)[: int(acceptance.num_worth(0.1))])


def test_in_rejection_mode_what_is_drafted_behind_the_run_goes_before_the_bonus_token():
    strategy = expect_all()
    law = Distribution(np.array([10, 11]), np.array([0.5, 0.5]))
    strategy.handle(drafted(3, 10, 11, parent=3, last=False, distributions={3: law, 4: law}))
    bonus = Bonus(5, 3, law.token_ids, law.probabilities)
    unlike = verified(2, 1, 2, 3, says=11).verdict
    commands = strategy.handle(Verified(2, replace(unlike, bonus=bonus)))
    assert commands[0] == Commit((7, 8, 9, 10), 3)


def test_length_has_a_limit_however_slow_the_target():
    strategy = BranchPrediction(Goal(2_000, predictor="always-all"))
    (draft,) = strategy.start(Capacity(target_s=1.0, drafter_s=1e-5))
    assert isinstance(draft, Draft)
    assert draft.depth <= MAX_DEPTH
    _, draft = strategy.handle(drafted(1, *range(draft.depth)))
    assert isinstance(draft, Draft)
    assert draft.depth <= MAX_DEPTH


def test_a_branch_ends_where_its_tokens_are_hardly_used():
    strategy = BranchPrediction(Goal(2_000, predictor="always-all"))
    (draft,) = strategy.start(Capacity(target_s=1.0, drafter_s=1e-5))
    _, branch = strategy.handle(drafted(1, *range(draft.depth)))
    assert branch.depth == int(AcceptanceRate().num_worth(IN_VAIN))


def test_predictor_is_told_every_outcome(monkeypatch):
    told: list[DraftOutcome] = []
    rounds: list[int] = []

    class Listening(AlwaysAll):
        def distribution(self, confidences, round_number):
            rounds.append(round_number)
            return super().distribution(confidences, round_number)

        def observe(self, outcome):
            told.append(outcome)

    monkeypatch.setitem(PREDICTORS, "listening", lambda _: Listening())
    strategy = begin(predictor="listening")
    strategy.handle(drafted(1, 7, 8, 9, choices={0: TopK((7, 5), (0.75, 0.25), 0.56)}))
    strategy.handle(verified(2, 1, 2, says=5))
    strategy.handle(drafted(4, 1, 2, 3, choices={0: TopK((5,), (0.5,), 1.2)}))
    strategy.handle(verified(5, says=6))
    # A place without choices tells nothing; a token that isn't listed is hardly expected.
    assert told == [DraftOutcome(2, (0.75, 1.0, 1.0)), DraftOutcome(0, (0.001, 1.0, 1.0))]
    assert rounds == [0, 1]


def test_distributions_follow_the_run_down_its_branch():
    laws = [Distribution(np.array([10 + n]), np.ones(1)) for n in range(3)]
    strategy = expect_all()
    part = drafted(3, 10, 11, 12, parent=3, distributions={3 + n: laws[n] for n in range(3)})
    strategy.handle(part)
    _, verify, *_ = strategy.handle(verified(2, 1, 2, 3, says=10))
    assert verify == Verify(
        4, (), TokenTree.chain((11, 12)), {0: laws[1], 1: laws[2]}, drafting_on=True
    )


@pytest.mark.parametrize("tokens", [(), (7,), (7, 8)])
def test_draft_that_ends_early_is_verified_as_it_is(tokens):
    assert begin().handle(drafted(1, *tokens))[0] == check(2, *tokens)


def test_failed_draft_costs_the_round_its_speculation():
    strategy = begin()
    assert strategy.handle(Failed(1)) == [check(2), branches(3, 3, EMPTY, 0)]
    expected = [Commit((5,), 0), Cancel(3), first_draft(4, 3)]
    assert strategy.handle(verified(2, says=5)) == expected


def test_branch_that_broke_is_used_as_far_as_it_got():
    strategy = expect_all()
    strategy.handle(drafted(3, 10, 11, parent=3, last=False))
    assert strategy.handle(Failed(3)) == []
    commands = strategy.handle(verified(2, 1, 2, 3, says=10))
    assert commands[:2] == [Commit((7, 8, 9, 10), 3), check(4, 11)]


def test_branch_that_breaks_after_it_was_right_is_used_as_far_as_it_got():
    strategy = expect_all()
    strategy.handle(drafted(3, 10, 11, parent=3, last=False))
    strategy.handle(verified(2, 1, 2, 3, says=10))
    assert strategy.handle(Failed(3))[0] == check(4, 11)


def test_right_branch_with_nothing_beyond_it_starts_over():
    strategy = expect_all()
    strategy.handle(drafted(3, 10, parent=3))
    expected = [Commit((7, 8, 9, 10), 3), first_draft(4, 3)]
    assert strategy.handle(verified(2, 1, 2, 3, says=10)) == expected


def with_second_choices(width: int = 5) -> BranchPrediction:
    """Waits for check 2 of (7, 8, 9) with 5 and 4 beside 7 and 8, and for draft 3 from 5."""
    strategy = begin(predictor="always-none", width=width)
    (verify, draft) = strategy.handle(drafted(1, 7, 8, 9, choices=SURE))
    assert verify.tree == chain_and({0: 5}, 7, 8, 9)
    assert draft.from_nodes == (4,)
    return strategy


def test_second_choices_are_those_of_the_outcomes_that_are_expected():
    with_second_choices()
    strategy = begin(predictor="confidence", width=5)
    (verify, _) = strategy.handle(drafted(1, 7, 8, 9, choices=SURE))
    assert verify.tree == chain_and({0: 5, 1: 4}, 7, 8, 9)


def test_branch_of_a_second_choice_goes_on_behind_what_follows_it():
    strategy = with_second_choices()
    strategy.handle(drafted(3, 6, 2, 1, 3, parent=4))
    says = Verified(2, Verdict((4,), 6, recovered=False))
    commit, verify, *_ = strategy.handle(says)
    assert commit == Commit((5, 6), 1)
    assert verify == check(4, 2, 1, 3)


def test_branch_that_is_wrong_behind_a_second_choice_starts_over():
    strategy = with_second_choices()
    strategy.handle(drafted(3, 6, 2, parent=4, last=False))
    expected = [Commit((5, 9), 1), Cancel(3), first_draft(4, 3)]
    assert strategy.handle(verified(2, 4, says=9)) == expected


@pytest.mark.parametrize(("width", "max_tokens"), [(3, 20), (9, 4)], ids=["width", "room"])
def test_a_chain_that_is_as_wide_as_it_may_be_gets_no_second_choices(width, max_tokens):
    strategy = begin(max_tokens, predictor="confidence", width=width)
    verify = strategy.handle(drafted(1, 7, 8, 9, choices=SURE))[0]
    assert verify.tree == TokenTree.chain((7, 8, 9))


def test_in_rejection_mode_there_are_no_second_choices():
    strategy = begin(predictor="confidence", width=9)
    law = Distribution(np.array([5, 7]), np.array([0.1, 0.9]))
    verify = strategy.handle(
        drafted(1, 7, 7, 7, choices=SURE, distributions=dict.fromkeys(range(3), law))
    )[0]
    assert verify.tree == TokenTree.chain((7, 7, 7))


def test_failed_verification_gives_up():
    assert expect_all().handle(Failed(2)) == [GiveUp(2)]


def test_end_of_text_within_an_accepted_run_ends_the_answer():
    strategy = begin()
    strategy.handle(drafted(1, 7, END, 9))
    expected = [Commit((7, END), 2), Finish(StopReason.END_OF_TEXT)]
    assert strategy.handle(verified(2, 1, 2, 3, says=5)) == expected


def test_single_token_needs_no_draft():
    strategy = BranchPrediction(Goal(1, lookahead=3))
    assert strategy.start(Capacity()) == [check(1)]
    assert strategy.handle(verified(1, says=5)) == [Commit((5,), 0), Finish(StopReason.LENGTH)]


def test_last_token_is_never_drafted():
    strategy = begin(4)
    # Three may be drafted, then the target says the last: nothing to draft beyond.
    commands = strategy.handle(drafted(1, 7, 8, 9))
    assert commands == [check(2, 7, 8, 9), branches(3, 2, TokenTree.chain((7, 8, 9)), 3)]
    assert BranchPrediction(Goal(2, lookahead=3)).start(Capacity()) == [first_draft(1, 1)]


def test_no_branch_grows_where_there_is_no_room_for_one():
    strategy = begin(2)
    assert strategy.handle(drafted(1, 7)) == [check(2, 7)]


def test_right_branch_is_cut_to_the_room_that_is_left():
    strategy = begin(6)
    strategy.handle(drafted(1, 7, 8, 9))
    strategy.handle(drafted(3, 10, 11, 12, parent=3))
    # Two to go: one drafted, one the target's own.
    expected = [Commit((7, 8, 9, 10), 3), check(4, 11)]
    assert strategy.handle(verified(2, 1, 2, 3, says=10)) == expected


def test_right_branch_that_is_no_longer_needed_is_cancelled():
    strategy = begin(5)
    strategy.handle(drafted(1, 7, 8, 9))
    strategy.handle(drafted(3, 10, parent=3, last=False))
    expected = [Commit((7, 8, 9, 10), 3), Cancel(3), check(4)]
    assert strategy.handle(verified(2, 1, 2, 3, says=10)) == expected


def test_late_events_of_old_tasks_are_ignored():
    strategy = expect_all()
    strategy.handle(verified(2, says=6))  # ends draft 3, begins draft 4
    for late in (drafted(1, 1), drafted(3, 1, parent=3), verified(2, 1, says=7)):
        assert strategy.handle(late) == []
    assert [strategy.handle(Failed(task)) for task in (1, 2, 3)] == [[], [], []]
    assert strategy.handle(drafted(4, 1, 2, 3))[0] == check(5, 1, 2, 3)


def test_a_crowd_that_meets_a_new_mesh_drafts_one_token_each():
    (draft,) = Exhaustive(Goal(20)).start(Capacity())
    assert draft.depth == 1
