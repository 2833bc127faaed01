"""When requests go: the decision alone, and over random histories."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specmesh.confidence.release import LIVE_S, WaitingRequest, WaitingRequests, next_batch, wait_s

WINDOW_S = 0.003


def waiting(number: int, session_id: str = "", confidence: float = 0.0, due: float = 1.0):
    return WaitingRequest(number, session_id or f"session-{number}", confidence, due)


def numbers(batch):
    return [each.number for each in batch]


def test_nothing_is_released_while_nothing_waits():
    assert next_batch([], [], now=9.0, max_batch=1) == []


def test_a_lone_session_never_waits():
    assert numbers(next_batch([waiting(0, "a")], ["a"], now=0.0, max_batch=32)) == [0]


def test_a_request_waits_for_a_session_at_work():
    assert next_batch([waiting(0, "a")], ["a", "b"], now=0.0, max_batch=32) == []


def test_everybody_waiting_goes_at_once():
    both = [waiting(0, "a"), waiting(1, "b")]
    assert numbers(next_batch(both, ["a", "b"], now=0.0, max_batch=32)) == [0, 1]


def test_a_session_that_waits_twice_does_not_stand_for_another():
    twice = [waiting(0, "a"), waiting(1, "a")]
    assert next_batch(twice, ["a", "b"], now=0.0, max_batch=32) == []


def test_all_go_when_the_oldest_is_due():
    both = [waiting(0, "a", due=1.0), waiting(1, "b", due=1.002)]
    assert next_batch(both, ["a", "b", "c"], now=0.999, max_batch=32) == []
    assert numbers(next_batch(both, ["a", "b", "c"], now=1.0, max_batch=32)) == [0, 1]


def test_a_full_batch_goes_at_once_and_the_least_sure_go_first():
    sure = [waiting(n, confidence=-float(n)) for n in range(5)]
    crowd = [f"session-{n}" for n in range(9)]
    assert numbers(next_batch(sure, crowd, now=0.0, max_batch=3)) == [4, 3, 2]
    assert next_batch(sure[:2], crowd, now=0.0, max_batch=3) == []


def test_equally_sure_requests_go_in_the_order_of_their_coming():
    equal = [waiting(n, confidence=-math.inf) for n in (2, 0, 1)]
    assert numbers(next_batch(equal, [], now=0.0, max_batch=2)) == [0, 1]


def test_a_session_not_seen_lately_is_not_waited_for():
    requests = WaitingRequests(32)
    requests.see("gone", 0.0)
    requests.see("here", 0.5)
    requests.add(waiting(0, "here", due=9.0))
    assert requests.release(LIVE_S - 0.001) == []
    assert requests.due == 9.0
    assert [numbers(batch) for batch in requests.release(LIVE_S)] == [[0]]
    assert requests.due is None


@pytest.mark.parametrize(
    ("verification_s", "expected_s"), [(0.0, 0.05), (0.004, 0.002), (0.1, 0.05), (9.0, 0.05)]
)
def test_a_wait_follows_what_a_verification_takes_up_to_the_window(verification_s, expected_s):
    assert wait_s(0.05, verification_s) == expected_s


def test_a_withdrawn_request_is_not_counted():
    requests = WaitingRequests(2)
    for session_id in "abc":
        requests.see(session_id, 0.0)
    requests.add(waiting(0, "a"))
    requests.withdraw(0)
    requests.add(waiting(1, "b"))
    assert requests.release(0.0) == []


@dataclass
class Step:
    session: int
    confidence: float
    elapsed_s: float
    withdraws: bool


STEPS = st.lists(
    st.builds(
        Step,
        session=st.integers(0, 6),
        confidence=st.sampled_from([-math.inf, -2.0, -1.0, -0.5, 0.0]),
        elapsed_s=st.sampled_from([0.0, 0.0005, 0.001, 0.002, 0.004, 1.5]),
        withdraws=st.sampled_from([False, False, False, True]),
    ),
    max_size=60,
)


@given(STEPS, st.integers(1, 5))
def test_each_request_is_released_once_in_time_and_in_order(steps, max_batch):
    requests, now = WaitingRequests(max_batch), 0.0
    since: dict[int, float] = {}
    confidence: dict[int, float] = {}

    def release() -> None:
        for batch in requests.release(now):
            assert 1 <= len(batch) <= max_batch
            rest = since.keys() - set(numbers(batch))
            surest = max(each.confidence for each in batch)
            assert all(confidence[number] >= surest for number in rest)
            for each in batch:
                assert now - since.pop(each.number) <= WINDOW_S + 1e-9  # once, and in time
        assert len(since) < max_batch

    def pass_time(until: float) -> None:
        nonlocal now
        while requests.due is not None and requests.due <= until:
            now = max(now, requests.due)
            release()
        now = until

    for number, step in enumerate(steps):
        pass_time(now + step.elapsed_s)
        session = f"session-{step.session}"
        requests.see(session, now)
        requests.add(waiting(number, session, step.confidence, now + WINDOW_S))
        since[number], confidence[number] = now, step.confidence
        if step.withdraws:
            requests.withdraw(number)
            del since[number]
        release()
    pass_time(now + WINDOW_S)
    assert not since
