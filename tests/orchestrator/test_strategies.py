"""Transcripts of the strategies: events in, commands out."""

from __future__ import annotations

import pytest
from tests.orchestrator.transcripts import drafted, verified

from specmesh.decoding.drafting import TopK
from specmesh.decoding.predict.lookahead import DEFAULT_LOOKAHEAD
from specmesh.decoding.predict.platt import Platt
from specmesh.decoding.trees.tree import EMPTY, TokenTree
from specmesh.orchestrator.strategies.autoregressive import Autoregressive
from specmesh.orchestrator.strategies.base import Goal
from specmesh.orchestrator.strategies.commands import (
    Commit,
    Draft,
    Finish,
    GiveUp,
    StopReason,
    Verify,
)
from specmesh.orchestrator.strategies.events import Capacity, Failed
from specmesh.orchestrator.strategies.speculative import Speculative

END, STOP = 90, 91


def verify(task: int, *tokens: int) -> Verify:
    return Verify(task, (), TokenTree.chain(tokens))


def draft(task: int, depth: int) -> Draft:
    return Draft(task, (), depth, levels_per_message=depth)


def speculating(max_tokens: int = 20, lookahead: int = 3) -> Speculative:
    """A strategy that waits for its first draft, task 1."""
    ends, stops = frozenset({END}), frozenset({STOP})
    strategy = Speculative(Goal(max_tokens, ends, stops, lookahead=lookahead))
    strategy.start(Capacity())
    return strategy


def test_autoregressive_asks_for_one_token_at_a_time():
    strategy = Autoregressive(Goal(max_tokens=2))
    assert strategy.start(Capacity()) == [Verify(1, (), EMPTY)]
    assert strategy.handle(verified(1, says=5)) == [Commit((5,), 0), Verify(2, (), EMPTY)]
    assert strategy.handle(verified(2, says=6)) == [Commit((6,), 0), Finish(StopReason.LENGTH)]


def test_autoregressive_ends_with_the_end_of_text():
    strategy = Autoregressive(Goal(max_tokens=9, end_of_text_ids=frozenset({END})))
    strategy.start(Capacity())
    end = [Commit((END,), 0), Finish(StopReason.END_OF_TEXT)]
    assert strategy.handle(verified(1, says=END)) == end


def test_autoregressive_ignores_late_answers_and_gives_up_on_failure():
    strategy = Autoregressive(Goal(max_tokens=9))
    strategy.start(Capacity())
    strategy.handle(verified(1, says=5))
    assert strategy.handle(verified(1, says=5)) == []
    assert strategy.handle(Failed(1)) == []
    assert strategy.handle(Failed(2)) == [GiveUp(2)]


def test_full_acceptance_commits_the_draft_and_the_bonus_token():
    strategy = Speculative(Goal(max_tokens=20, lookahead=3))
    assert strategy.start(Capacity()) == [draft(1, 3)]
    assert strategy.handle(drafted(1, 7, 8, 9)) == [verify(2, 7, 8, 9)]
    expected = [Commit((7, 8, 9, 5), 3), draft(3, 3)]
    assert strategy.handle(verified(2, 1, 2, 3, says=5)) == expected


def test_rejected_token_is_replaced_by_the_recovered_one():
    strategy = speculating()
    strategy.handle(drafted(1, 7, 8, 9))
    assert strategy.handle(verified(2, 1, says=6)) == [Commit((7, 6), 1), draft(3, 3)]


def test_next_round_starts_from_an_empty_draft():
    strategy = speculating()
    strategy.handle(drafted(1, 7, 8, 9))
    strategy.handle(verified(2, says=6))
    assert strategy.handle(drafted(3, 1, 2, 3)) == [verify(4, 1, 2, 3)]


def test_draft_that_comes_in_parts_is_verified_whole():
    strategy = speculating()
    assert strategy.handle(drafted(1, 7, last=False)) == []
    assert strategy.handle(drafted(1, 8, 9, parent=1)) == [verify(2, 7, 8, 9)]


def test_last_token_is_never_drafted():
    strategy = speculating(max_tokens=4)
    strategy.handle(drafted(1, 7, 8, 9))
    # Three to go: two drafted, one the target's own.
    assert strategy.handle(verified(2, says=5)) == [Commit((5,), 0), draft(3, 2)]
    strategy.handle(drafted(3, 7, 8))
    # One to go: no draft at all.
    assert strategy.handle(verified(4, 1, says=5)) == [Commit((7, 5), 1), verify(5)]
    assert strategy.handle(verified(5, says=6)) == [Commit((6,), 0), Finish(StopReason.LENGTH)]


def test_single_token_needs_no_draft():
    assert Speculative(Goal(max_tokens=1, lookahead=3)).start(Capacity()) == [verify(1)]


@pytest.mark.parametrize("tokens", [(), (7,), (7, 8)])
def test_draft_that_ends_early_is_verified_as_it_is(tokens):
    strategy = speculating()
    assert strategy.handle(drafted(1, *tokens)) == [verify(2, *tokens)]


@pytest.mark.parametrize("tokens", [(), (7,), (7, 8)])
def test_failed_draft_leaves_the_round_with_what_there_is(tokens):
    strategy = speculating()
    if tokens:
        strategy.handle(drafted(1, *tokens, last=False))
    assert strategy.handle(Failed(1)) == [verify(2, *tokens)]
    accepted = tuple(range(1, len(tokens) + 1))
    expected = [Commit((*tokens, 5), len(tokens)), draft(3, 3)]
    assert strategy.handle(verified(2, *accepted, says=5)) == expected


def test_failed_verification_gives_up():
    strategy = speculating()
    strategy.handle(drafted(1, 7, 8, 9))
    assert strategy.handle(Failed(2)) == [GiveUp(2)]


def adaptive_round(strategy: Speculative, command: Draft, sure: float, num_accepted: int) -> Draft:
    """Answer a draft of four tokens and its verification; the next draft."""
    choices = {node: TopK((7,), (sure,), 0.5) for node in range(4)}
    strategy.handle(drafted(command.task, 7, 7, 7, 7, choices=choices))
    accepted = range(1, num_accepted + 1)
    *_, following = strategy.handle(verified(command.task + 1, *accepted, says=5))
    return following


def test_without_a_lookahead_drafts_end_where_going_on_does_not_pay():
    strategy = Speculative(Goal(max_tokens=200))
    (first,) = strategy.start(Capacity(target_s=0.01, drafter_s=0.001))
    assert (first.depth, first.num_choices) == (DEFAULT_LOOKAHEAD, 1)
    assert 0 < first.stop.below < 1
    assert first.stop.acceptance == Platt()
    second = adaptive_round(strategy, first, sure=0.9, num_accepted=0)
    assert second.stop.acceptance(0.9) < 0.9
    strategy.handle(Capacity(target_s=0.01, drafter_s=0.001, target_token_s=0.001))
    third = adaptive_round(strategy, second, sure=0.9, num_accepted=0)
    assert third.stop.below > 1.5 * second.stop.below


def test_without_a_lookahead_or_a_latency_drafts_have_one_token():
    (first,) = Speculative(Goal(max_tokens=200)).start(Capacity(target_s=0.01))
    assert (first.depth, first.stop) == (1, None)


def test_lookahead_that_was_asked_for_stays():
    strategy = Speculative(Goal(max_tokens=200, lookahead=4))
    (command,) = strategy.start(Capacity(target_s=0.01, drafter_s=0.001))
    for _ in range(5):
        assert command == draft(command.task, 4)
        command = adaptive_round(strategy, command, sure=0.9, num_accepted=0)


def test_late_events_of_old_tasks_are_ignored():
    strategy = speculating()
    strategy.handle(drafted(1, 7, 8, 9))
    assert strategy.handle(drafted(1, 4, parent=3)) == []
    assert strategy.handle(Failed(1)) == []
    strategy.handle(verified(2, says=6))
    assert strategy.handle(verified(2, 1, says=5)) == []
    assert strategy.handle(Failed(2)) == []
    assert strategy.handle(drafted(3, 1, 2, 3)) == [verify(4, 1, 2, 3)]


def test_end_of_text_within_the_accepted_run_ends_the_answer():
    strategy = speculating()
    strategy.handle(drafted(1, 7, END, 9))
    expected = [Commit((7, END), 2), Finish(StopReason.END_OF_TEXT)]
    assert strategy.handle(verified(2, 1, 2, 3, says=5)) == expected


def test_stop_token_within_the_accepted_run_ends_the_answer():
    strategy = speculating()
    strategy.handle(drafted(1, STOP, 8, 9))
    expected = [Commit((STOP,), 1), Finish(StopReason.STOP)]
    assert strategy.handle(verified(2, 1, 2, says=5)) == expected
