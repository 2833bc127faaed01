"""The end of running answers, by the tokens that they get; no clock."""

from __future__ import annotations

import pytest

from specmesh.orchestrator.admission.pace import (
    KEPT_SECONDS,
    KNOWN_SECONDS,
    KNOWN_TOKENS,
    USUAL_TOKENS,
    AnswerPace,
)


def test_nothing_is_known_before_answers_have_some_tokens_or_have_run_for_a_while():
    pace = AnswerPace()
    answers = [pace.began(0.0) for _ in range(4)]
    for answer in answers:
        answer.limit = 100
    assert pace.answer_s(0.1) is None
    assert pace.answer_s(1.1 * KNOWN_SECONDS) == float("inf")  # they hardly move
    for answer in answers:
        pace.progressed(answer, KNOWN_TOKENS, 1.1 * KNOWN_SECONDS)
    assert 0 < pace.answer_s(1.1 * KNOWN_SECONDS) < float("inf")


def test_before_any_has_ended_an_answer_is_taken_to_use_its_limit():
    pace = AnswerPace()
    answer = pace.began(0.0)
    answer.limit = 100
    pace.progressed(answer, 10, 1.0)
    assert pace.answer_s(1.0) == pytest.approx(10.0)
    assert pace.until_ended_s(1, 1.0) == pytest.approx(9.0)


@pytest.mark.parametrize("limit", [None, 1000, 100_000])
def test_before_any_has_ended_an_answer_is_taken_to_use_no_high_limit(limit):
    pace = AnswerPace()
    answer = pace.began(0.0)
    answer.limit = limit
    pace.progressed(answer, 10, 1.0)
    assert pace.answer_s(1.0) == pytest.approx(USUAL_TOKENS / 10)
    pace.progressed(answer, USUAL_TOKENS - 10, 1.0)
    pace.answer_s(1.0 + KEPT_SECONDS)
    # By now it is longer than usual, and taken to be halfway.
    assert pace.until_ended_s(1, 1.0 + KEPT_SECONDS) == pytest.approx(1.0, rel=0.05)


def test_an_answer_that_has_run_for_long_says_nothing_of_a_crowd_that_has_just_come():
    pace = AnswerPace()
    for num_tokens in (10_000, 8, 8):
        pace.progressed(pace.began(0.0), num_tokens, 0.0)
    pace.answer_s(1.0)
    assert pace.until_ended_s(4, 1.0) < 20 * pace.until_ended_s(2, 1.0)


def test_answers_are_as_long_as_recent_ones_were_for_their_limits():
    pace = AnswerPace()
    answers = [pace.began(0.0) for _ in range(2)]
    for answer in answers:
        answer.limit = 200
        pace.progressed(answer, 10, 1.0)
    assert pace.answer_s(1.0) == pytest.approx(20.0)
    pace.progressed(answers[0], 10, 2.0)
    pace.ended(answers[0], 2.0)  # at the end of its text
    assert pace.until_ended_s(1, 2.0) < 2.0


def test_the_next_to_end_is_the_one_that_lacks_least():
    pace = AnswerPace()
    for limit in (100, 60, 80):
        answer = pace.began(0.0)
        answer.limit = limit
        pace.progressed(answer, 10, 0.0)
    pace.answer_s(1.0)
    ends = [pace.until_ended_s(number, 1.0) for number in (1, 2, 3, 4)]
    assert ends == sorted(ends)
    assert ends[0] / ends[1] == pytest.approx(50 / 70)
    assert ends[3] == pytest.approx(ends[0] + pace.answer_s(1.0))


def test_who_ends_when_is_found_once_for_all_who_are_refused_at_the_same_time():
    pace = AnswerPace()
    answer = pace.began(0.0)
    answer.limit = 100
    pace.progressed(answer, 50, 1.0)
    assert pace.until_ended_s(1, 1.0) == pytest.approx(1.0)
    answer.limit = 200
    assert pace.until_ended_s(1, 1.0) == pytest.approx(1.0)
    assert pace.until_ended_s(1, 1.0 + KEPT_SECONDS) > 2.5


def test_an_answer_that_begins_or_ends_counts_at_once():
    pace = AnswerPace()
    first, second = pace.began(0.0), pace.began(0.0)
    first.limit, second.limit = 20, 60
    for answer in (first, second):
        pace.progressed(answer, 10, 1.0)
    assert pace.until_ended_s(1, 1.0) == pytest.approx(1.0)
    pace.ended(first, 1.0)
    assert pace.until_ended_s(1, 1.0) == pytest.approx(2.0)  # half of 60, as with the first
    pace.began(1.0).limit = 40
    assert pace.until_ended_s(2, 1.0) == pytest.approx(2.0)


def test_answers_that_no_longer_move_are_noticed():
    pace = AnswerPace()
    answer = pace.began(0.0)
    answer.limit = 100
    pace.progressed(answer, 50, 1.0)
    assert pace.until_ended_s(1, 1.0) == pytest.approx(1.0)
    assert pace.until_ended_s(1, 10.0) > 5.0


def test_an_answer_that_failed_at_once_says_nothing_of_lengths():
    pace = AnswerPace()
    failed, other = pace.began(0.0), pace.began(0.0)
    failed.limit = other.limit = 100
    pace.ended(failed, 0.5)
    pace.progressed(other, 10, 1.0)
    assert pace.num_running == 1
    assert pace.until_ended_s(1, 1.0) > 5.0


def test_answers_that_have_just_begun_count_before_their_limits_are_known():
    """Otherwise a few that are further would seem to make place for all who wait, one by one."""
    pace = AnswerPace()
    answers = [pace.began(0.0) for _ in range(8)]
    for answer in answers:
        answer.limit = 16
        pace.progressed(answer, 8, 1.0)
    before_s = pace.until_ended_s(80, 1.0)
    for answer in answers[1:]:
        pace.progressed(answer, 8, 1.0)
        pace.ended(answer, 1.0)
        pace.began(1.0)
    assert pace.until_ended_s(80, 1.0) == pytest.approx(before_s, rel=0.6)


def test_where_all_have_just_begun_they_are_taken_to_be_as_the_last_ones_were():
    pace = AnswerPace()
    answer = pace.began(0.0)
    answer.limit = 10
    pace.progressed(answer, 10, 1.0)
    pace.ended(answer, 1.0)
    pace.began(1.0)
    assert pace.until_ended_s(1, 1.0) == pytest.approx(1.0)
    assert pace.until_ended_s(3, 1.0) == pytest.approx(3.0)
