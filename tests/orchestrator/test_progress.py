"""Where an answer ends."""

from __future__ import annotations

import pytest

from specmesh.orchestrator.strategies.base import Goal
from specmesh.orchestrator.strategies.commands import Commit, Finish, StopReason
from specmesh.orchestrator.strategies.kit.progress import Progress

END, STOP = 90, 91


def commit(goal: Goal, accepted: tuple[int, ...], next_token: int = 5) -> list[object]:
    return Progress(goal).commit((*accepted, next_token), num_accepted=len(accepted))


def goal(max_tokens: int = 10, *, end_of_text_ids: frozenset[int] = frozenset({END})) -> Goal:
    return Goal(max_tokens, end_of_text_ids, stop_token_ids=frozenset({STOP}))


def test_accepted_tokens_and_the_targets_own_are_committed_together():
    assert commit(goal(), (1, 2)) == [Commit((1, 2, 5), 2)]


@pytest.mark.parametrize(
    ("room", "expected"),
    [
        (1, Commit((1,), 1)),
        (2, Commit((1, 2), 2)),
        (3, Commit((1, 2, 3), 3)),
        (4, Commit((1, 2, 3, 5), 3)),
    ],
)
def test_max_tokens_cuts_within_an_accepted_run(room, expected):
    assert commit(goal(room), (1, 2, 3)) == [expected, Finish(StopReason.LENGTH)]


@pytest.mark.parametrize(
    ("token", "reason"), [(END, StopReason.END_OF_TEXT), (STOP, StopReason.STOP)]
)
def test_ending_token_within_an_accepted_run_is_the_last(token, reason):
    assert commit(goal(), (1, token, 3)) == [Commit((1, token), 2), Finish(reason)]
    assert commit(goal(), (1, 2), token) == [Commit((1, 2, token), 2), Finish(reason)]


def test_first_of_two_ending_tokens_decides():
    assert commit(goal(), (STOP, END)) == [Commit((STOP,), 1), Finish(StopReason.STOP)]


def test_ending_token_beyond_max_tokens_is_not_reached():
    assert commit(goal(1), (1, END)) == [Commit((1,), 1), Finish(StopReason.LENGTH)]


def test_ending_token_at_max_tokens_gives_the_reason():
    assert commit(goal(2), (1, END)) == [Commit((1, END), 2), Finish(StopReason.END_OF_TEXT)]


def test_end_of_text_can_be_ignored():
    ignoring = goal(end_of_text_ids=frozenset())
    assert commit(ignoring, (1, END), 5) == [Commit((1, END, 5), 2)]


def test_remaining_counts_down_over_commits():
    progress = Progress(goal(5))
    assert progress.commit((1, 2, 3), num_accepted=2) == [Commit((1, 2, 3), 2)]
    assert progress.remaining == 2
    assert not progress.ended
    finish = Finish(StopReason.LENGTH)
    assert progress.commit((4, 5, 6), num_accepted=2) == [Commit((4, 5), 2), finish]
    assert progress.remaining == 0
    assert progress.ended
    assert progress.token_ids == [1, 2, 3, 4, 5]


def test_last_token_is_not_worth_drafting():
    assert Progress(goal(5)).draftable == 4
    assert Progress(goal(1)).draftable == 0


def test_ending_token_ends_progress():
    progress = Progress(goal())
    progress.commit((1, END, 3), num_accepted=2)
    assert progress.ended
    assert progress.token_ids == [1, END]
