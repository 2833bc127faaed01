"""Transcripts of DSI: events in, commands out. Lines are those of Algorithm 1."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from tests.orchestrator.transcripts import drafted, verified

from specmesh.decoding.drafting import TopK
from specmesh.decoding.predict.acceptance_rate import PRIOR_ALPHA, AcceptanceRate
from specmesh.decoding.predict.round_costs import RoundCosts
from specmesh.decoding.sampling import Distribution
from specmesh.decoding.trees.tree import EMPTY, TokenTree
from specmesh.orchestrator.strategies.base import Goal
from specmesh.orchestrator.strategies.chains.drafting import MAX_DRAFT_TOKENS
from specmesh.orchestrator.strategies.chains.reach import UNLIKELY
from specmesh.orchestrator.strategies.commands import (
    Cancel,
    Commit,
    Draft,
    Finish,
    GiveUp,
    StopReason,
    Verify,
)
from specmesh.orchestrator.strategies.dsi import DSI, MAX_CHECK_TOKENS, NUM_CHOICES
from specmesh.orchestrator.strategies.events import Capacity, Drafted, Failed

END = 90
ALONE, CHAIN = 1, 2
"""The first tasks: the target alone on the prefix, and the first drafter's chain."""


def begin(
    max_tokens: int = 20, *, lookahead: int = 3, num_verifiers: int = 8, num_drafters: int = 1
) -> DSI:
    strategy = DSI(Goal(max_tokens, frozenset({END}), lookahead=lookahead))
    strategy.start(Capacity(num_verifiers, tuple(range(num_drafters))))
    return strategy


def check(task: int, *tokens: int, path: tuple[int, ...] = ()) -> Verify:
    return Verify(task, path, TokenTree.chain(tokens), drafting_on=True)


def draft(task: int, depth: int, path: tuple[int, ...] = (), drafter: int = 0) -> Draft:
    return Draft(task, path, depth, drafter=drafter)


def two_blocks(*, num_verifiers: int = 8) -> DSI:
    """Waits for ALONE, for check 3 of (7, 8, 9) and for check 4 of (10, 11, 12)."""
    strategy = begin(num_verifiers=num_verifiers)
    assert strategy.handle(drafted(CHAIN, 7, 8, 9, last=False)) == [check(3, 7, 8, 9)]
    second = check(4, 10, 11, 12, path=(7, 8, 9))
    assert strategy.handle(drafted(CHAIN, 10, 11, 12, parent=3, last=False)) == [second]
    return strategy


def two_chains(num_verifiers: int = 8) -> DSI:
    """Waits for ALONE (task 1) and the chains of two drafters, tasks 2 and 3."""
    return begin(num_verifiers=num_verifiers, num_drafters=2)


def test_target_and_drafter_begin_at_once():
    """Line 2."""
    strategy = DSI(Goal(20, lookahead=3))
    assert strategy.start(Capacity()) == [draft(2, 19), Verify(1, (), EMPTY, drafting_on=True)]


def test_block_leaves_as_soon_as_it_is_drafted():
    strategy = begin()
    assert strategy.handle(drafted(CHAIN, 7, last=False)) == []
    assert strategy.handle(drafted(CHAIN, 8, parent=1, last=False)) == []
    expected = [check(3, 7, 8, 9)]
    assert strategy.handle(drafted(CHAIN, 9, parent=2, last=False)) == expected


def test_token_of_the_target_alone_that_was_drafted_changes_nothing_under_way():
    strategy = two_blocks()
    assert strategy.handle(verified(ALONE, says=7)) == [Commit((7,), 1)]


def test_token_of_the_target_alone_that_was_not_drafted_ends_everything():
    """Line 8."""
    strategy = two_blocks()
    assert strategy.handle(verified(ALONE, says=6)) == [
        *(Commit((6,), 0, recovered=True), Cancel(CHAIN), Cancel(3), Cancel(4)),
        *(draft(6, 18), check(5)),
    ]


def test_rejection_ends_exactly_what_hangs_from_it():
    strategy = two_chains()
    strategy.handle(drafted(2, 7, 8, 9, last=False))  # check 4
    strategy.handle(drafted(2, 10, 11, 12, parent=3, last=False))  # check 5
    assert strategy.handle(drafted(3, 7, 8, 1, last=False)) == [check(6, 7, 8, 1)]
    # The first drafter's 9 gives way to 1, which is just what the second has.
    assert strategy.handle(verified(4, 1, 2, says=1)) == [
        *(Commit((7, 8, 1), 3), Cancel(2), Cancel(ALONE), Cancel(5)),
        draft(7, 16, drafter=0),
    ]
    assert strategy.handle(verified(6, 1, 2, 3, says=2)) == [
        *(Commit((2,), 0), Cancel(7), Cancel(3)),
        *(draft(9, 15, drafter=0), draft(10, 15, drafter=1), check(8)),
    ]


def test_rejected_token_is_replaced_and_both_go_on_from_there():
    strategy = two_blocks()
    assert strategy.handle(verified(3, 1, says=6)) == [
        *(Commit((7, 6), 1, recovered=True), Cancel(CHAIN), Cancel(ALONE), Cancel(4)),
        *(draft(6, 17), check(5)),
    ]


def test_bonus_token_that_was_drafted_makes_the_next_check_the_current_verifier():
    """Line 11."""
    strategy = two_blocks()
    expected = [Commit((7, 8, 9, 10), 4), Cancel(ALONE)]
    assert strategy.handle(verified(3, 1, 2, 3, says=10)) == expected
    expected = [Commit((11, 12, 5), 2), Cancel(CHAIN), draft(6, 12), check(5)]
    assert strategy.handle(verified(4, 1, 2, 3, says=5)) == expected


def test_bonus_token_that_was_not_drafted_ends_chain_and_checks():
    strategy = two_blocks()
    assert strategy.handle(verified(3, 1, 2, 3, says=6)) == [
        *(Commit((7, 8, 9, 6), 3, recovered=True), Cancel(CHAIN), Cancel(ALONE), Cancel(4)),
        *(draft(6, 15), check(5)),
    ]


def test_verdict_that_comes_before_its_turn_is_kept():
    """Lines 13 and 14."""
    strategy = two_blocks()
    assert strategy.handle(verified(4, 1, 2, says=5)) == []
    assert strategy.handle(verified(3, 1, 2, 3, says=10)) == [
        *(Commit((7, 8, 9, 10), 4), Cancel(ALONE)),
        *(Commit((11, 5), 1, recovered=True), Cancel(CHAIN)),
        *(draft(6, 13), check(5)),
    ]


def test_replica_whose_verdict_is_kept_is_free():
    strategy = two_blocks(num_verifiers=3)
    assert strategy.handle(drafted(CHAIN, 13, 14, 15, parent=6, last=False)) == []
    third = check(5, 13, 14, 15, path=(7, 8, 9, 10, 11, 12))
    assert strategy.handle(verified(4, 1, 2, says=5)) == [third]


def test_verdict_that_came_before_its_turn_falls_with_what_it_hangs_from():
    strategy = two_blocks()
    strategy.handle(verified(4, 1, 2, 3, says=5))
    assert strategy.handle(verified(3, 1, 2, says=6)) == [
        *(Commit((7, 8, 6), 2, recovered=True), Cancel(CHAIN), Cancel(ALONE)),
        *(draft(6, 16), check(5)),
    ]
    # Task 4 has spoken of other tokens.
    assert strategy.handle(verified(5, says=1)) == [
        *(Commit((1,), 0), Cancel(6), draft(8, 15), check(7))
    ]


def test_verdict_that_differs_from_one_that_spoke_first_is_of_no_use():
    """In rejection mode the target alone may say what the check then rejects."""
    strategy = two_blocks()
    assert strategy.handle(verified(ALONE, says=7)) == [Commit((7,), 1)]
    expected = [check(5, 8, 9, 10, 11, 12)]
    assert strategy.handle(verified(3, says=6)) == expected
    assert strategy.handle(verified(5, 1, says=2)) == [
        *(Commit((8, 2), 1, recovered=True), Cancel(CHAIN), Cancel(4), draft(7, 16), check(6))
    ]


def test_verdict_of_one_token_less_than_is_known_is_of_no_use():
    strategy = two_chains()
    strategy.handle(drafted(2, 7, 8, 9, last=False))  # check 4
    strategy.handle(drafted(3, 7, 8, 1, last=False))  # check 5
    expected = [Commit((7, 8, 1), 3), Cancel(2), Cancel(ALONE), draft(6, 16)]
    assert strategy.handle(verified(4, 1, 2, says=1)) == expected
    # It rejects the 8 that stands: nothing follows the 1.
    assert strategy.handle(verified(5, 1, says=4)) == [check(7)]


def test_no_more_checks_run_than_there_are_replicas():
    strategy = begin(num_verifiers=2)
    assert strategy.handle(drafted(CHAIN, 7, 8, 9, last=False)) == [check(3, 7, 8, 9)]
    assert strategy.handle(drafted(CHAIN, 10, 11, 12, parent=3, last=False)) == []


def test_check_grows_while_no_replica_is_free():
    strategy = begin(num_verifiers=2)
    strategy.handle(drafted(CHAIN, 7, 8, 9, last=False))
    strategy.handle(drafted(CHAIN, 10, 11, 12, parent=3, last=False))
    strategy.handle(drafted(CHAIN, 13, parent=6, last=False))
    grown = check(4, 10, 11, 12, 13, path=(8, 9))
    assert strategy.handle(verified(ALONE, says=7)) == [Commit((7,), 1), grown]


def test_single_replica_verifies_all_there_is_when_it_is_free():
    strategy = begin(num_verifiers=1)
    assert strategy.handle(drafted(CHAIN, 7, 8, 9, 10, last=False)) == []
    expected = [Commit((7,), 1), check(3, 8, 9, 10)]
    assert strategy.handle(verified(ALONE, says=7)) == expected


def test_less_than_a_block_is_verified_when_nothing_tells_the_next_token():
    strategy = begin()
    strategy.handle(drafted(CHAIN, 7, 8, last=False))
    assert strategy.handle(verified(ALONE, says=7)) == [Commit((7,), 1), check(3, 8)]


def test_replica_that_joins_is_put_to_work():
    strategy = begin(num_verifiers=1)
    strategy.handle(drafted(CHAIN, 7, 8, 9, last=False))
    assert strategy.handle(Capacity(num_verifiers=2)) == [check(3, 7, 8, 9)]


def test_replica_that_leaves_ends_nothing():
    strategy = two_blocks()
    assert strategy.handle(Capacity(num_verifiers=1)) == []
    assert strategy.handle(drafted(CHAIN, 13, 14, parent=6, last=False)) == []
    assert strategy.handle(verified(ALONE, says=7)) == [Commit((7,), 1)]


def test_drafters_draft_chains_of_their_own():
    strategy = DSI(Goal(20, lookahead=3))
    expected = [draft(2, 19, drafter=0), draft(3, 19, drafter=1), check(1)]
    assert strategy.start(Capacity(drafters=(0, 1))) == expected


def test_drafter_that_joins_drafts_from_what_is_committed():
    strategy = begin()
    strategy.handle(drafted(CHAIN, 7, last=False))
    assert strategy.handle(verified(ALONE, says=7)) == [Commit((7,), 1), check(3)]
    expected = [draft(4, 18, drafter=1)]
    assert strategy.handle(Capacity(num_verifiers=8, drafters=(0, 1))) == expected


def test_when_a_drafter_leaves_nobody_goes_on_with_its_chain():
    strategy = two_chains()
    strategy.handle(drafted(2, 7, 8, last=False))
    assert strategy.handle(Capacity(num_verifiers=8, drafters=(0,))) == [Cancel(3)]
    assert strategy.handle(drafted(3, 9, last=False)) == []
    assert strategy.handle(drafted(2, 9, parent=2, last=True)) == [
        draft(4, 16, path=(7, 8, 9)),
        check(5, 7, 8, 9),
    ]


def test_what_a_drafter_had_drafted_when_it_left_is_verified_at_once():
    strategy = two_chains()
    strategy.handle(drafted(3, 7, 8, last=False))
    left = Capacity(num_verifiers=8, drafters=(0,))
    assert strategy.handle(left) == [Cancel(3), check(4, 7, 8)]
    commit, *commands = strategy.handle(verified(ALONE, says=7))
    assert commit == Commit((7,), 1)
    assert [each.path for each in commands if isinstance(each, Draft)] == [()]
    commit, *commands = strategy.handle(verified(4, 1, 2, says=9))
    assert commit == Commit((8, 9), 1)
    assert [each.path for each in commands if isinstance(each, Draft)] == [()]
    assert [chain.drafter for chain in strategy._chains] == [0]


def test_when_the_first_drafter_leaves_the_other_goes_on_with_its_own_chain():
    strategy = two_chains()
    strategy.handle(drafted(3, 7, 8, last=False))
    assert strategy.handle(Capacity(num_verifiers=8, drafters=(1,))) == [Cancel(2)]
    assert strategy.handle(drafted(3, 9, parent=2, last=True)) == [
        draft(4, 16, path=(7, 8, 9)),
        check(5, 7, 8, 9),
    ]


def test_a_drafter_that_comes_back_drafts_from_what_is_committed():
    strategy = two_chains()
    strategy.handle(drafted(3, 7, last=False))
    strategy.handle(Capacity(num_verifiers=8, drafters=(1,)))
    assert strategy.handle(verified(ALONE, says=7)) == [Commit((7,), 1), check(4)]
    back = Capacity(num_verifiers=8, drafters=(0, 1))
    assert strategy.handle(back) == [draft(5, 18)]


def test_a_failure_that_comes_after_its_drafter_has_left_changes_nothing():
    strategy = two_chains()
    strategy.handle(Capacity(num_verifiers=8, drafters=(0,)))
    assert strategy.handle(Failed(3)) == []


def test_what_two_drafters_agree_on_is_verified_once():
    strategy = two_chains()
    assert strategy.handle(drafted(2, 7, 8, 9, last=False)) == [check(4, 7, 8, 9)]
    assert strategy.handle(drafted(3, 7, 8, 9, last=False)) == []


def test_in_rejection_mode_each_drafter_is_verified_for_itself():
    strategy = two_chains()
    law = Distribution(np.array([7]), np.ones(1))
    both = [
        drafted(task, 7, 7, 7, last=False, distributions={0: law, 1: law, 2: law})
        for task in (2, 3)
    ]
    (first,), (second,) = map(strategy.handle, both)
    assert first == Verify(
        4, (), TokenTree.chain((7, 7, 7)), {0: law, 1: law, 2: law}, drafting_on=True
    )
    assert second == Verify(
        5, (), TokenTree.chain((7, 7, 7)), {0: law, 1: law, 2: law}, drafting_on=True
    )


def test_first_drafter_that_is_right_is_preferred():
    """Line 9."""
    strategy = two_chains()
    strategy.handle(drafted(3, 7, 8, last=False))
    strategy.handle(drafted(2, 7, 1, last=False))
    assert strategy.handle(verified(ALONE, says=7)) == [Commit((7,), 1), check(4, 1)]


def test_second_drafter_takes_over_where_the_first_is_wrong():
    strategy = two_chains()
    strategy.handle(drafted(2, 7, 8, 9, last=False))  # check 4
    strategy.handle(drafted(3, 5, 6, last=False))
    assert strategy.handle(verified(ALONE, says=5)) == [
        *(Commit((5,), 1), Cancel(2), Cancel(4)),
        *(draft(6, 18, drafter=0), check(5, 6)),
    ]


def test_drafter_that_is_behind_starts_over_from_what_is_committed():
    strategy = begin()
    assert strategy.handle(verified(ALONE, says=7)) == [
        *(Commit((7,), 0), Cancel(CHAIN), draft(4, 18), check(3))
    ]
    strategy.handle(drafted(4, 8, last=False))
    assert strategy.handle(drafted(4, 9, 10, parent=1, last=False)) == [check(5, 8, 9, 10)]


def test_draft_that_breaks_leaves_what_it_brought():
    strategy = begin()
    strategy.handle(drafted(CHAIN, 7, 8, last=False))
    assert strategy.handle(Failed(CHAIN)) == []
    expected = [Commit((7,), 1), draft(4, 17, path=(8,)), check(3, 8)]
    assert strategy.handle(verified(ALONE, says=7)) == expected


def test_answer_goes_on_without_a_drafter():
    strategy = begin(3)
    assert strategy.handle(Failed(CHAIN)) == []
    expected = [Commit((7,), 0), draft(4, 1), check(3)]
    assert strategy.handle(verified(ALONE, says=7)) == expected
    assert strategy.handle(Failed(4)) == []
    assert strategy.handle(verified(3, says=8)) == [Commit((8,), 0), check(5)]
    assert strategy.handle(verified(5, says=9)) == [Commit((9,), 0), Finish(StopReason.LENGTH)]


def test_draft_that_ends_early_is_drafted_on():
    strategy = begin()
    expected = [draft(3, 17, path=(7, 8))]
    assert strategy.handle(drafted(CHAIN, 7, 8, last=True)) == expected
    assert strategy.handle(drafted(3, 9, last=False)) == [check(4, 7, 8, 9)]


def test_drafter_with_nothing_to_say_is_asked_again_once_more_is_committed():
    strategy = begin()
    assert strategy.handle(drafted(CHAIN)) == []
    expected = [Commit((7,), 0), draft(4, 18), check(3)]
    assert strategy.handle(verified(ALONE, says=7)) == expected


@pytest.mark.parametrize(("first", "second"), [(ALONE, 3), (3, ALONE)])
def test_answer_is_given_up_once_nothing_tells_the_next_token(first, second):
    strategy = two_blocks()
    strategy.handle(Failed(first))
    assert strategy.handle(Failed(second)) == [GiveUp(second)]


def test_answer_goes_on_if_another_check_tells_what_one_that_failed_would_have():
    strategy = two_blocks()
    assert strategy.handle(Failed(ALONE)) == []
    assert strategy.handle(verified(3, 1, 2, says=5))[0] == Commit((7, 8, 5), 2, recovered=True)


def test_failure_of_a_later_check_only_sends_it_again():
    strategy = two_blocks()
    assert strategy.handle(Failed(4)) == [check(5, 10, 11, 12, path=(7, 8, 9))]


def test_lookahead_is_the_smallest_with_which_no_check_waits():
    """Equation 1: 0.04 / (2 * 0.01) = 2 tokens a check."""
    strategy = DSI(Goal(20))
    strategy.start(Capacity(num_verifiers=2, target_s=0.04, drafter_s=0.01))
    assert strategy.handle(drafted(CHAIN, 7, last=False)) == []
    assert strategy.handle(drafted(CHAIN, 8, parent=1, last=False)) == [check(3, 7, 8)]


def test_lookahead_follows_the_capacity():
    strategy = DSI(Goal(20))
    strategy.start(Capacity(num_verifiers=4, target_s=0.16, drafter_s=0.01))
    assert strategy.handle(drafted(CHAIN, 7, 8, 9, last=False)) == []
    changed = Capacity(num_verifiers=4, target_s=0.12, drafter_s=0.01)
    assert strategy.handle(changed) == [check(3, 7, 8, 9)]
    assert strategy.handle(drafted(CHAIN, 10, 11, parent=3, last=False)) == []
    more = Capacity(num_verifiers=6, target_s=0.12, drafter_s=0.01)
    assert strategy.handle(more) == [check(4, 10, 11, path=(7, 8, 9))]


def test_a_verification_is_worth_its_row_to_the_answers_that_share_replicas():
    """A row takes them as long as two draft tokens, of which three in ten are wrong."""
    mesh = Capacity(32, target_s=0.2, drafter_s=0.01, target_token_s=0.02, period_s=0.2)
    strategy = DSI(Goal(20))
    strategy.start(mesh)
    assert strategy.handle(drafted(CHAIN, 7, last=False)) == []
    assert strategy.handle(drafted(CHAIN, 8, parent=1, last=False)) == []
    assert strategy.handle(drafted(CHAIN, 9, parent=2, last=False)) == [check(3, 7, 8, 9)]


def test_before_anything_is_known_a_chain_has_one_token():
    strategy = DSI(Goal(20))
    strategy.start(Capacity(num_verifiers=4))
    assert strategy.handle(drafted(CHAIN, 7, last=False)) == [Cancel(CHAIN), check(3, 7)]


def test_end_of_text_within_an_accepted_run_ends_the_answer():
    strategy = begin()
    strategy.handle(drafted(CHAIN, 7, END, 9, last=False))
    expected = [Commit((7, END), 2), Finish(StopReason.END_OF_TEXT)]
    assert strategy.handle(verified(3, 1, 2, 3, says=5)) == expected


def test_verdict_kept_for_later_may_end_the_answer():
    strategy = two_blocks()
    strategy.handle(verified(4, 1, says=END))
    expected = [
        *(Commit((7, 8, 9, 10), 4), Cancel(ALONE)),
        *(Commit((END,), 0, recovered=True), Finish(StopReason.END_OF_TEXT)),
    ]
    assert strategy.handle(verified(3, 1, 2, 3, says=10)) == expected


def test_last_token_is_never_drafted():
    assert DSI(Goal(1, lookahead=3)).start(Capacity()) == [check(1)]
    strategy = DSI(Goal(3, lookahead=3))
    assert strategy.start(Capacity(num_verifiers=2)) == [draft(2, 2), check(1)]
    # All there is to draft leaves at once, although it is less than a block.
    assert strategy.handle(drafted(CHAIN, 7, 8)) == [check(3, 7, 8)]
    expected = [Commit((7, 8, 9), 2), Finish(StopReason.LENGTH)]
    assert strategy.handle(verified(3, 1, 2, says=9)) == expected


def test_late_events_of_old_tasks_are_ignored():
    strategy = two_blocks()
    strategy.handle(verified(ALONE, says=6))  # ends tasks 2, 3 and 4
    for late in (verified(ALONE, says=6), verified(3, 1, 2, 3, says=10), drafted(CHAIN, 13)):
        assert strategy.handle(late) == []
    assert strategy.handle(Failed(CHAIN)) == strategy.handle(Failed(4)) == []
    assert strategy.handle(drafted(6, 1, 2, 3, last=False)) == [check(7, 1, 2, 3)]


def test_distributions_go_with_the_tokens_drawn_from_them():
    laws = [Distribution(np.array([7 + n]), np.ones(1)) for n in range(4)]
    strategy = begin(lookahead=2)
    parts = [
        drafted(CHAIN, 7 + n, parent=n, last=n == 1, distributions={n: laws[n]}) for n in range(2)
    ]
    assert strategy.handle(parts[0]) == []
    first = Verify(4, (), TokenTree.chain((7, 8)), {0: laws[0], 1: laws[1]}, drafting_on=True)
    assert strategy.handle(parts[1]) == [draft(3, 17, path=(7, 8)), first]
    part = drafted(3, 9, 10, last=False, distributions={0: laws[2], 1: laws[3]})
    expected = Verify(
        5, (7, 8), TokenTree.chain((9, 10)), {0: laws[2], 1: laws[3]}, drafting_on=True
    )
    assert strategy.handle(part) == [expected]


def test_draft_and_check_have_a_limit_however_quick_the_drafter():
    strategy = DSI(Goal(2_000, lookahead=300))
    assert strategy.start(Capacity())[0] == draft(2, MAX_DRAFT_TOKENS)
    tokens = range(MAX_DRAFT_TOKENS)
    assert strategy.handle(drafted(2, *tokens)) == [draft(3, MAX_DRAFT_TOKENS, path=(*tokens,))]
    assert strategy.handle(drafted(3, *tokens)) == [draft(4, MAX_DRAFT_TOKENS, path=(*tokens,) * 2)]
    expected = check(5, *(*tokens, *tokens)[1 : 1 + MAX_CHECK_TOKENS])
    assert strategy.handle(verified(ALONE, says=0)) == [Commit((0,), 1), expected]


def test_chain_goes_no_further_than_the_replicas_can_use():
    """Two at work on three tokens each, and as many again for when they are through."""
    strategy = begin(100, lookahead=3, num_verifiers=2)
    strategy.handle(Capacity(num_verifiers=2, target_s=0.03, drafter_s=0.01))
    strategy.handle(drafted(CHAIN, *range(12), last=False))
    assert strategy.handle(drafted(CHAIN, 12, parent=12, last=False)) == [Cancel(CHAIN)]
    assert strategy.handle(verified(3, *range(1, 7), says=6)) == [
        *(Commit((*range(7),), 7), Cancel(ALONE)),
        *(draft(5, 86, path=(*range(7, 13),)), check(4, *range(7, 13))),
    ]


def test_chain_goes_no_further_than_verifying_it_is_worth():
    """Verifying one more costs a tenth of the verification."""
    strategy = DSI(Goal(100))
    strategy.start(Capacity(8, target_s=0.1, drafter_s=0.005, target_token_s=0.01))
    worth = int(AcceptanceRate().num_worth(0.1))
    assert Cancel(CHAIN) not in strategy.handle(drafted(CHAIN, *range(worth - 1), last=False))
    assert Cancel(CHAIN) in strategy.handle(drafted(CHAIN, 8, parent=worth - 1, last=False))


def test_chain_goes_no_further_than_it_is_likely_to_stand():
    strategy = DSI(Goal(100))
    strategy.start(Capacity(8, target_s=1.0, drafter_s=0.005))
    likely = int(AcceptanceRate().num_worth(UNLIKELY))
    assert Cancel(CHAIN) not in strategy.handle(drafted(CHAIN, *range(likely - 1), last=False))
    assert Cancel(CHAIN) in strategy.handle(drafted(CHAIN, 8, parent=likely - 1, last=False))


def test_drafter_that_is_never_right_is_only_tried_now_and_then():
    strategy = DSI(Goal(2_000))
    strategy.start(Capacity(2, target_s=0.1, drafter_s=0.01))
    alone, chain, num_drafts = ALONE, CHAIN, 0
    for n in range(1_000):
        if chain:
            strategy.handle(drafted(chain, 8, last=False))
        commands = strategy.handle(verified(alone, says=7))
        alone = next(each.task for each in commands if isinstance(each, Verify))
        chain = next((each.task for each in commands if isinstance(each, Draft)), None)
        num_drafts += chain is not None and n >= 200
    assert num_drafts == pytest.approx(800 * 0.01 / 0.1, abs=1)


def test_a_single_replica_waits_for_the_draft_that_pays_and_no_longer():
    strategy = DSI(Goal(100))
    quick = Capacity(target_s=0.1, drafter_s=0.002)
    commands = strategy.start(quick)
    assert [type(each) for each in commands] == [Draft]
    depth = RoundCosts(0.1, 0.002, 0.0, alone_s=0.1).best_depth(PRIOR_ALPHA, 64)
    task = commands[0].task
    assert strategy.handle(drafted(task, *range(depth - 1), last=False)) == []
    (verify,) = strategy.handle(drafted(task, 99, parent=depth - 1, last=False))
    assert len(verify.tree) == depth


def test_a_single_replica_does_not_wait_for_a_draft_that_has_ended():
    strategy = DSI(Goal(100))
    (draft,) = strategy.start(Capacity(target_s=0.1, drafter_s=0.002))
    commands = strategy.handle(Failed(draft.task))
    assert [each.tree for each in commands if isinstance(each, Verify)] == [EMPTY]


@pytest.mark.parametrize(
    "capacity",
    [
        Capacity(2, target_s=0.1, drafter_s=0.002),
        Capacity(target_s=0.1, drafter_s=0.03),
        Capacity(target_s=0.1, drafter_s=0.002, period_s=0.1),
    ],
)
def test_where_the_target_loses_nothing_it_begins_at_once(capacity):
    commands = DSI(Goal(100)).start(capacity)
    assert any(isinstance(each, Verify) for each in commands)


SLOW_DRAFTER = Capacity(target_s=0.1, drafter_s=0.12)


def decodes_on(task: int, num_further: int) -> Verify:
    return Verify(task, (), EMPTY, num_further=num_further)


def test_drafter_slower_than_the_target_is_only_tried_now_and_then():
    strategy = DSI(Goal(1_000))
    (begun,) = strategy.start(SLOW_DRAFTER)
    assert begun == decodes_on(1, 20)
    task, num_drafts = 1, 0
    for _ in range(600):
        commands = strategy.handle(verified(task, says=7))
        task = next(each.task for each in commands if isinstance(each, Verify))
        drafts = [each for each in commands if isinstance(each, Draft)]
        assert all(each.depth == 1 for each in drafts)
        num_drafts += len(drafts)
    assert num_drafts == 600 * 0.01 // 1.2


def decoding_until_a_draft(capacity: Capacity) -> tuple[DSI, int]:
    """Return the strategy while the target decodes on by task 1, and the task of a draft made to
    see whether drafts pay."""
    strategy = DSI(Goal(1_000))
    assert strategy.start(capacity) == [decodes_on(1, 20)]
    while True:
        commit, *drafts = strategy.handle(verified(1, says=7, more=True))
        assert commit == Commit((7,), 0)
        if drafts:
            (explores,) = drafts
            assert (type(explores), explores.path, explores.depth) == (Draft, (), 1)
            return strategy, explores.task


def test_where_drafts_do_not_pay_the_target_decodes_on_until_it_ends():
    strategy = DSI(Goal(1_000))
    strategy.start(SLOW_DRAFTER)
    for token in range(5):
        assert strategy.handle(verified(1, says=token, more=True)) == [Commit((token,), 0)]
    commands = strategy.handle(verified(1, says=5))
    assert commands == [Commit((5,), 0), decodes_on(2, 20)]


def test_a_draft_ends_the_decoding_on_where_there_is_no_other_replica():
    strategy, task = decoding_until_a_draft(SLOW_DRAFTER)
    assert strategy.handle(drafted(task, 70)) == [Cancel(1), check(task + 1, 70)]
    # The next token was on its way.
    assert strategy.handle(verified(1, says=70, more=True)) == []
    commands = strategy.handle(verified(task + 1, 1, says=71))
    assert commands == [Commit((70, 71), 1), decodes_on(task + 2, 20)]


def test_a_draft_is_verified_beside_the_decoding_on_where_a_replica_is_free():
    strategy, task = decoding_until_a_draft(replace(SLOW_DRAFTER, num_verifiers=2))
    assert strategy.handle(drafted(task, 70)) == [check(task + 1, 70)]
    assert strategy.handle(verified(1, says=70, more=True)) == [Commit((70,), 1)]
    # The verification overtakes the target, which has not said the token after 70 yet.
    commands = strategy.handle(verified(task + 1, 1, says=71))
    assert commands == [Commit((71,), 0), Cancel(1), decodes_on(task + 2, 20)]


def test_a_wrong_draft_beside_the_decoding_on_leaves_it_alone():
    strategy, task = decoding_until_a_draft(replace(SLOW_DRAFTER, num_verifiers=2))
    strategy.handle(drafted(task, 70))
    commands = strategy.handle(verified(1, says=69, more=True))
    assert commands == [Commit((69,), 0, recovered=True), Cancel(task + 1)]
    assert strategy.handle(verified(1, says=71, more=True)) == [Commit((71,), 0)]


def test_decoding_on_that_fails_gives_up_as_any_verification_does():
    strategy, _ = decoding_until_a_draft(SLOW_DRAFTER)
    assert strategy.handle(Failed(1)) == [GiveUp(1)]


def test_drafter_that_has_become_quick_is_let_draft_on():
    strategy = DSI(Goal(1_000))
    strategy.start(SLOW_DRAFTER)
    quick = Capacity(target_s=0.1, drafter_s=0.01)
    assert [*strategy.handle(quick), *strategy.handle(verified(1, says=7))] == [
        *(Commit((7,), 0), replace(draft(3, 256), num_choices=NUM_CHOICES), check(2))
    ]


def test_quick_drafter_speaks_less_often_but_never_later_than_a_check_can_leave():
    for lookahead, levels in ((1, 1), (3, 3), (9, 4)):
        strategy = DSI(Goal(20, lookahead=lookahead))
        commands = strategy.start(Capacity(drafter_s=0.0005, target_s=0.1))
        assert commands[0] == Draft(2, (), 19, levels_per_message=levels)


def unsure_of_the_second(task: int = CHAIN, **also) -> Drafted:
    """Two tokens, of the second of which the drafter is not sure."""
    choices = {0: TopK((7,), (0.9,), 0.1), 1: TopK((8,), (0.4,), 0.9)}
    return drafted(task, 7, 8, last=False, choices=choices, **also)


def test_tokens_that_are_unlikely_to_stand_are_verified_at_once():
    strategy = DSI(Goal(20))
    capacity = Capacity(num_verifiers=2, target_s=0.4, drafter_s=0.01)
    assert strategy.start(capacity)[0].num_choices == NUM_CHOICES
    assert strategy.handle(unsure_of_the_second()) == [check(3, 7, 8)]


def test_verdicts_teach_how_sure_is_sure_enough():
    strategy = DSI(Goal(100))
    strategy.start(Capacity(num_verifiers=2, target_s=0.4, drafter_s=0.01))
    draft_task, alone = CHAIN, ALONE
    sure = {0: TopK((7,), (0.7,), 0.1)}
    for _ in range(4):
        assert strategy.handle(drafted(draft_task, 7, last=False, choices=sure)) == []
        _, _, again, verify = strategy.handle(verified(alone, says=6))
        draft_task, alone = again.task, verify.task
    assert strategy.handle(drafted(draft_task, 7, last=False, choices=sure)) == [
        check(draft_task + 1, 7)
    ]


@pytest.mark.parametrize(
    ("goal", "num_verifiers"),
    [(Goal(20, lookahead=20), 2), (Goal(20), 1)],
    ids=["a lookahead was asked for", "a single replica"],
)
def test_otherwise_the_drafters_doubts_do_not_count(goal, num_verifiers):
    strategy = DSI(goal)
    capacity = Capacity(num_verifiers, target_s=0.4, drafter_s=0.01)
    strategy.start(capacity)
    assert strategy.handle(unsure_of_the_second()) == []


def test_in_rejection_mode_what_leaves_does_not_depend_on_the_tokens_drawn():
    strategy = DSI(Goal(20))
    strategy.start(Capacity(num_verifiers=2, target_s=0.4, drafter_s=0.01))
    law = Distribution(np.array([7, 8]), np.array([0.1, 0.9]))
    assert strategy.handle(unsure_of_the_second(distributions={0: law, 1: law})) == []


CHOSEN = {0: TopK((7, 5), (0.9, 0.05), 0.1), 1: TopK((8, 4), (0.6, 0.3), 0.9)}


@pytest.mark.parametrize(
    ("token_s", "others"), [(0.0, (4, 5)), (0.03, (4,)), (0.2, ())], ids=["free", "cheap", "dear"]
)
def test_second_choices_are_verified_where_they_are_worth_their_time(token_s, others):
    strategy = DSI(Goal(20))
    strategy.start(Capacity(8, target_s=0.4, drafter_s=0.06, target_token_s=token_s))
    (verify,) = strategy.handle(drafted(CHAIN, 7, 8, last=False, choices=CHOSEN))
    assert verify.tree.token_ids == (7, 8, *others)


def test_a_lookahead_leaves_verifications_to_the_chain():
    strategy = DSI(Goal(20, lookahead=2))
    strategy.start(Capacity(8, target_s=0.4, drafter_s=0.06))
    (verify,) = strategy.handle(drafted(CHAIN, 7, 8, last=False, choices=CHOSEN))
    assert verify.tree == TokenTree.chain((7, 8))


def test_verifications_of_a_short_chain_leave_sooner_where_replicas_are_free():
    """By Equation 1, with tokens as likely as not, each of three replicas would get 10 tokens."""
    strategy = DSI(Goal(99))
    strategy.start(Capacity(3, target_s=0.3, drafter_s=0.01))
    learnt = AcceptanceRate()
    num = math.ceil((learnt.num_worth(UNLIKELY) - 1) / 2)
    assert num < 10
    sure = drafted(CHAIN, *range(num), last=False)
    assert [each.task for each in strategy.handle(sure) if isinstance(each, Verify)] == [3]
