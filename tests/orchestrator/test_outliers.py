"""Who is left out, for how long, and who never is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specmesh.orchestrator.replicas.pool.outliers import (
    BASE_SECONDS,
    FORGIVEN_SECONDS,
    MAX_FAILURES,
    MAX_IN_A_ROW,
    MAX_SECONDS,
    MIN_PACES,
    SILENT_SECONDS,
    SLOW,
    EjectionReason,
    Outliers,
)

ALL = ("a", "b", "c")


def fail(
    outliers: Outliers, replica: str, times: int, now: float = 0.0
) -> list[EjectionReason | None]:
    return [outliers.failed(replica, ALL, now, now) for _ in range(times)]


def answer(
    outliers: Outliers, replica: str, times: int, pace: float | None = 1.0, now: float = 0.0
) -> list[EjectionReason | None]:
    return [outliers.answered(replica, ALL, now, now, pace) for _ in range(times)]


def test_failures_in_a_row_leave_a_replica_out():
    outliers = Outliers()
    assert fail(outliers, "a", MAX_IN_A_ROW + 1) == [*[None] * MAX_IN_A_ROW, EjectionReason.ERRORS]
    assert outliers.usable(ALL, 0.0) == ["b", "c"]


def timed_out(outliers: Outliers, began: float, now: float) -> EjectionReason | None:
    return outliers.failed("a", ALL, began, now, EjectionReason.LATENCY)


def test_what_can_be_done_without_is_left_out_as_soon_as_it_hangs():
    outliers = Outliers(last_stays=False)
    answer(outliers, "a", 1, now=1.0)
    assert timed_out(outliers, 2.0, 2.0 + SILENT_SECONDS) is EjectionReason.LATENCY


def test_what_has_answered_others_meanwhile_does_not_hang():
    outliers = Outliers(last_stays=False)
    answer(outliers, "a", 1, now=2.1)
    assert timed_out(outliers, 2.0, 2.0 + SILENT_SECONDS) is None


def test_what_goes_on_with_another_call_meanwhile_does_not_hang():
    outliers = Outliers(last_stays=False)
    answer(outliers, "a", 1, now=1.0)
    outliers.heard("a", 2.1)
    assert timed_out(outliers, 2.0, 2.1 + 2 * SILENT_SECONDS) is None


def test_what_has_never_answered_may_still_be_loading():
    assert timed_out(Outliers(last_stays=False), 2.0, 9.0) is None


def test_what_answers_need_is_not_left_out_for_one_timeout():
    outliers = Outliers()
    answer(outliers, "a", 1, now=1.0)
    assert timed_out(outliers, 2.0, 9.0) is None


def test_an_answer_now_and_then_does_not_hide_failures():
    outliers = Outliers()
    causes = []
    for _ in range(MAX_FAILURES + 1):
        causes += answer(outliers, "a", 2) + fail(outliers, "a", 1)
    assert causes[-1] is EjectionReason.ERRORS
    assert outliers.is_ejected("a")


def test_rare_failures_are_nothing():
    outliers = Outliers()
    for _ in range(20):
        answer(outliers, "a", 9)
        fail(outliers, "a", 1)
    assert outliers.usable(ALL, 0.0) == [*ALL]


def test_replica_much_slower_than_the_others_is_left_out():
    outliers = Outliers()
    answer(outliers, "b", MIN_PACES)
    answer(outliers, "c", MIN_PACES)
    assert EjectionReason.LATENCY in answer(outliers, "a", MIN_PACES, pace=SLOW + 0.1)


def test_all_slow_together_is_nobodys_fault():
    outliers = Outliers()
    for _ in range(5):
        assert not any(answer(outliers, r, MIN_PACES, pace=50.0)[-1] for r in ALL)


@pytest.mark.parametrize("num_others", [1, 4, 9])
def test_all_slow_for_a_while_is_nobodys_fault_however_the_calls_are_spread(num_others: int):
    outliers = Outliers()
    replicas = [*"a", *("b" for _ in range(num_others))]
    paces = [1.0] * 200 + [50.0] * 64 + [1.0] * 200  # until such times are what is usual
    for number, pace in enumerate(paces):
        assert not answer(outliers, replicas[number % len(replicas)], 1, pace)[0]


@pytest.mark.parametrize("num_others", [1, 4, 50])
def test_slow_replica_is_left_out_however_few_calls_it_gets(num_others: int):
    outliers = Outliers()
    causes = []
    for _ in range(MIN_PACES):
        answer(outliers, "b", num_others)
        causes += answer(outliers, "a", 1, pace=SLOW + 0.1)
    assert causes == [*[None] * (MIN_PACES - 1), EjectionReason.LATENCY]


def test_replica_is_tried_by_one_call_a_while_and_taken_back_by_its_answer():
    outliers = Outliers()
    fail(outliers, "a", MAX_IN_A_ROW + 1)
    assert not outliers.due("a", BASE_SECONDS * 0.99)
    assert outliers.due("a", BASE_SECONDS)
    outliers.tried("a", BASE_SECONDS)
    assert outliers.usable(ALL, BASE_SECONDS) == ["b", "c"]
    answer(outliers, "a", 1, now=BASE_SECONDS)
    assert outliers.usable(ALL, BASE_SECONDS) == [*ALL]


def test_answer_of_a_call_from_before_proves_nothing():
    outliers = Outliers()
    fail(outliers, "a", MAX_IN_A_ROW + 1, now=1.0)
    outliers.answered("a", ALL, began=0.5, now=1.5)
    assert outliers.is_ejected("a")


def test_answer_that_is_still_slow_does_not_take_a_replica_back():
    outliers = Outliers()
    for other in ("b", "c"):
        answer(outliers, other, MIN_PACES)
    answer(outliers, "a", MIN_PACES, pace=SLOW * 2)
    answer(outliers, "a", 1, pace=SLOW * 2, now=BASE_SECONDS)
    assert outliers.is_ejected("a")
    answer(outliers, "a", 1, now=BASE_SECONDS * 3)
    assert not outliers.is_ejected("a")


def test_each_trial_that_fails_doubles_the_wait():
    outliers = Outliers()
    fail(outliers, "a", MAX_IN_A_ROW + 1)
    now, waits = 0.0, []
    for _ in range(10):
        wait = next(s for s in range(1, 200) if outliers.due("a", now + s))
        waits.append(wait)
        now += wait
        outliers.tried("a", now)
        fail(outliers, "a", 1, now)
    assert waits == [1, 2, 4, 8, 16, 32, *[MAX_SECONDS] * 4]


def test_good_conduct_shortens_the_next_wait():
    outliers = Outliers()
    fail(outliers, "a", MAX_IN_A_ROW + 1)
    fail(outliers, "a", 1, now=1.0)
    answer(outliers, "a", 1, now=3.0)
    later = 3.0 + 2 * FORGIVEN_SECONDS
    fail(outliers, "a", MAX_IN_A_ROW + 1, now=later)
    assert outliers.due("a", later + BASE_SECONDS)


def test_replica_that_came_up_anew_is_tried_at_once():
    outliers = Outliers()
    fail(outliers, "a", MAX_IN_A_ROW + 1)
    outliers.restarted("a", 0.1)
    assert outliers.due("a", 0.1)


def test_replica_that_is_gone_leaves_no_record_to_its_namesake():
    outliers = Outliers()
    fail(outliers, "a", MAX_IN_A_ROW + 1)
    outliers.forget("a")
    assert not outliers.any_ejected
    assert not outliers.proven("a")
    assert fail(outliers, "a", MAX_IN_A_ROW) == [None] * MAX_IN_A_ROW
    assert outliers.usable(ALL, 0.0) == [*ALL]


def test_dispensable_replicas_may_all_be_left_out():
    outliers = Outliers(last_stays=False)
    for replica in ALL:
        fail(outliers, replica, MAX_IN_A_ROW + 1)
    assert outliers.usable(ALL, 0.0) == []


def test_if_only_those_left_out_are_there_they_are_used():
    outliers = Outliers()
    fail(outliers, "a", MAX_IN_A_ROW + 1)
    assert outliers.usable(["a"], 0.0) == ["a"]


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["answered", "failed", "restarted", "tried", "forgotten"]),
        st.integers(0, 8),
        st.floats(0, 5),
        st.floats(0.1, 20),
    ),
    max_size=200,
)


@given(num_replicas=st.integers(1, 9), events=EVENTS)
def test_a_third_stays_whatever_happens(num_replicas, events):
    outliers = Outliers()
    replicas = [str(number) for number in range(num_replicas)]
    now = 0.0
    for kind, number, seconds, pace in events:
        replica = replicas[number % num_replicas]
        began, now = now, now + seconds
        match kind:
            case "answered":
                outliers.answered(replica, replicas, began, now, pace)
            case "failed":
                outliers.failed(replica, replicas, began, now)
            case "restarted":
                outliers.restarted(replica, now)
            case "forgotten":
                outliers.forget(replica)
            case "tried" if outliers.due(replica, now):
                outliers.tried(replica, now)
        assert len(outliers.usable(replicas, now)) >= num_replicas / 3
        assert outliers.any_ejected == any(map(outliers.is_ejected, replicas))
