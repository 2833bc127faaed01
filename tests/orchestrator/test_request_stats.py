"""What an answer took is counted from commands and events."""

from __future__ import annotations

from specmesh.decoding.acceptance import Verdict
from specmesh.decoding.trees.tree import TokenTree
from specmesh.orchestrator.driver.stats import RequestStats
from specmesh.orchestrator.strategies.commands import Cancel, Commit, Verify
from specmesh.orchestrator.strategies.events import Drafted, Failed, Verified


def drafted(task: int, *tokens: int) -> Drafted:
    return Drafted(task, tokens, tuple(range(len(tokens))), {}, last=True)


def test_a_round_counts_drafted_verified_accepted_and_wasted():
    stats = RequestStats()
    stats.handled(drafted(1, 7, 8, 9))
    stats.sent(Verify(2, (), TokenTree.chain((7, 8, 9))))
    stats.handled(Verified(2, Verdict((1, 2), 5, recovered=True)))
    stats.committed(Commit((7, 8, 5), num_accepted=2))
    assert stats.num_verify_calls == 1
    assert stats.num_verified_tokens == 3
    assert stats.num_accepted_tokens == 2
    assert stats.num_wasted_tokens == 1


def test_draft_that_was_never_verified_is_wasted():
    stats = RequestStats()
    stats.handled(drafted(1, 7, 8))
    stats.handled(Failed(1))
    assert stats.num_wasted_tokens == 2
    assert stats.num_verified_tokens == stats.num_verify_calls == 0


def test_verification_that_failed_is_no_call_that_was_used():
    stats = RequestStats()
    stats.handled(drafted(1, 7))
    stats.sent(Verify(2, (), TokenTree.chain((7,))))
    stats.handled(Failed(2))
    assert stats.num_verify_calls == stats.num_verified_tokens == 0
    assert stats.num_wasted_tokens == 1


def test_verifications_under_way_together_are_told_apart():
    stats = RequestStats()
    stats.sent(Verify(1, (), TokenTree.chain((7,))))
    stats.sent(Verify(2, (7,), TokenTree.chain((8, 9))))
    stats.handled(Verified(2, Verdict((1, 2), 5, recovered=False)))
    assert stats.num_verified_tokens == 2
    stats.handled(Verified(1, Verdict((), 6, recovered=True)))
    assert stats.num_verified_tokens == 3
    assert stats.num_verify_calls == 2


def test_draft_token_that_the_targets_own_confirms_is_judged_too():
    """As the token of a verification that has nothing to check may do."""
    stats = RequestStats()
    stats.sent(Verify(1, (), TokenTree.chain(())))
    stats.sent(Verify(2, (), TokenTree.chain((7, 8))))
    stats.handled(Verified(1, Verdict((), 7, recovered=False)))
    stats.committed(Commit((7,), num_accepted=1))
    assert stats.num_verified_tokens == stats.num_accepted_tokens == 1


def test_draft_token_is_judged_once_however_many_verifications_tell_it():
    stats = RequestStats()
    stats.sent(Verify(1, (), TokenTree.chain(())))
    stats.sent(Verify(2, (), TokenTree.chain((7, 8))))
    stats.handled(Verified(1, Verdict((), 7, recovered=False)))
    stats.committed(Commit((7,), num_accepted=1))
    stats.handled(Verified(2, Verdict((1, 2), 9, recovered=False)))
    stats.committed(Commit((8, 9), num_accepted=1))
    assert stats.num_verified_tokens == stats.num_accepted_tokens == 2


def test_draft_token_that_the_targets_own_refutes_is_judged_too():
    stats = RequestStats()
    stats.sent(Verify(1, (), TokenTree.chain(())))
    stats.sent(Verify(2, (), TokenTree.chain((7, 8))))
    stats.handled(Verified(1, Verdict((), 5, recovered=False)))
    stats.committed(Commit((5,), num_accepted=0))
    stats.cancelled(Cancel(2))
    assert (stats.num_verified_tokens, stats.num_accepted_tokens) == (1, 0)
    stats.sent(Verify(3, (), TokenTree.chain(())))
    stats.handled(Verified(3, Verdict((), 6, recovered=False)))
    stats.committed(Commit((6,), num_accepted=0))
    assert stats.num_verified_tokens == 1


def test_verification_that_failed_judges_nothing_later():
    stats = RequestStats()
    stats.sent(Verify(1, (), TokenTree.chain((7, 8))))
    stats.handled(Failed(1))
    stats.committed(Commit((5,), num_accepted=0))
    assert stats.num_verified_tokens == 0


def test_second_choices_are_drafted_when_sent_and_judge_no_further_position():
    stats = RequestStats()
    stats.handled(drafted(1, 7, 8, 9))
    tree = TokenTree.chain((7, 8, 9)).extend((4, 3), (1, 2))
    stats.sent(Verify(2, (), tree, num_second_choices=2))
    assert (stats.num_drafted_tokens, stats.num_target_tokens) == (5, 6)
    stats.handled(Verified(2, Verdict((1, 4), 5, recovered=False)))
    stats.committed(Commit((7, 4, 5), num_accepted=2))
    assert (stats.num_verified_tokens, stats.num_accepted_tokens) == (3, 2)
    assert stats.num_wasted_tokens == 3


def test_every_token_of_a_drafted_tree_is_judged():
    stats = RequestStats()
    stats.handled(Drafted(1, (7, 5, 8), (0, 0, 1), {}, last=True))
    stats.sent(Verify(2, (), TokenTree((7, 5, 8), (0, 0, 1))))
    stats.handled(Verified(2, Verdict((1, 3), 6, recovered=False)))
    stats.committed(Commit((7, 8, 6), num_accepted=2))
    assert (stats.num_drafted_tokens, stats.num_verified_tokens) == (3, 3)


def test_target_tokens_count_every_place_asked_for_answered_or_not():
    stats = RequestStats()
    stats.sent(Verify(1, (), TokenTree.chain(())))
    stats.sent(Verify(2, (7,), TokenTree.chain((8, 9))))
    assert stats.num_target_tokens == 1 + 3
    assert stats.num_verify_calls == 0
