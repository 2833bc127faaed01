"""The decision who may wait, by the end of running answers; no clock."""

from __future__ import annotations

import pytest

from specmesh.orchestrator.admission.controller import MIN_RETRY_SECONDS, Admission

SIZE = 16


def at_work(admission: Admission, token_s: float, limit: int, now: float = 10.0) -> float:
    """Begin as many answers as there is room for, half done at that pace; return the time then."""
    answers = [admission.pace.began(now) for _ in range(SIZE)]
    later = now + limit / 2 * token_s
    for answer in answers:
        answer.limit = limit
        admission.pace.progressed(answer, limit // 2, later)
    return later


def test_until_it_is_known_how_fast_answers_proceed_any_may_wait():
    admission = Admission()
    assert admission.expected_wait_s(0, SIZE, 0.0) is None
    assert admission.may_wait(10 * SIZE, SIZE, 600, 0.0, resumed=False)
    assert not admission.is_hopeless(None)


def test_a_wait_is_expected_by_the_tokens_that_running_answers_lack():
    admission = Admission()
    now = at_work(admission, token_s=0.1, limit=40)
    assert admission.expected_wait_s(0, SIZE, now) == pytest.approx(2.0)
    assert admission.expected_wait_s(SIZE - 1, SIZE, now) == pytest.approx(2.0)
    assert admission.expected_wait_s(SIZE, SIZE, now) == pytest.approx(6.0)  # behind a whole one
    assert admission.expected_wait_s(0, SIZE // 2, now) == pytest.approx(2.0)
    assert admission.expected_wait_s(SIZE // 2, SIZE // 2, now) == pytest.approx(6.0)


def test_who_would_wait_for_more_than_half_of_the_patience_may_not_wait():
    admission = Admission(max_wait_s=5.0)
    now = at_work(admission, token_s=0.1, limit=40)
    assert admission.may_wait(SIZE - 1, SIZE, 600, now, resumed=False)
    assert not admission.may_wait(SIZE, SIZE, 600, now, resumed=False)


def test_who_could_not_be_answered_before_the_deadline_may_not_wait():
    admission = Admission(max_wait_s=5.0)
    now = at_work(admission, token_s=0.1, limit=40)
    assert admission.may_wait(0, SIZE, 8.5, now, resumed=False)
    # It takes 4 s to answer, and twice 2 s to wait.
    assert not admission.may_wait(0, SIZE, 7.5, now, resumed=False)


def test_an_answer_that_began_elsewhere_may_wait_however_long_the_running_ones_are():
    admission = Admission(max_wait_s=5.0)
    now = at_work(admission, token_s=0.1, limit=100_000)
    assert not admission.may_wait(0, SIZE, 600, now, resumed=False)
    assert admission.may_wait(0, SIZE, 600, now, resumed=True)


def test_it_is_hopeless_to_wait_for_answers_that_take_twice_as_long_as_patience():
    admission = Admission(max_wait_s=2.0)
    now = at_work(admission, token_s=0.1, limit=40)
    assert not admission.is_hopeless(admission.expected_wait_s(0, SIZE, now))
    assert admission.is_hopeless(admission.expected_wait_s(SIZE, SIZE, now))


def test_a_refusal_says_when_to_come_again_each_at_another_time():
    admission = Admission(max_wait_s=4.0)
    error = admission.overload(SIZE, 7, 5.0, die=0.5).error()
    assert error.reason == "OVERLOADED"
    assert error.metadata == {
        "num_running": "0",
        "max_running": str(SIZE),
        "num_waiting": "7",
        "expected_wait_ms": "5000",
    }
    assert error.retry_after_s == pytest.approx(3.0)
    times = {admission.overload(SIZE, 7, 5.0, die).retry_after_s for die in (0.0, 0.3, 0.9)}
    assert len(times) == 3
    assert all(1.5 <= each < 4.5 for each in times)


def test_a_refusal_tells_no_wait_that_is_unknown():
    error = Admission(max_wait_s=4.0).overload(SIZE, 7, None, die=0.5).error()
    assert error.message == "0 answers are running and 7 are waiting"
    assert error.metadata.keys() == {"num_running", "max_running", "num_waiting"}
    assert error.retry_after_s == MIN_RETRY_SECONDS


def test_no_client_is_told_to_come_again_in_an_hour():
    assert Admission(max_wait_s=4.0).overload(SIZE, 7, 3600.0, die=0.5).retry_after_s == 4.0
