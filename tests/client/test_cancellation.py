"""How soon cancelled work stops, read from traces."""

from dataclasses import replace

import pytest
from tests.client.spans import (
    DRAFTER,
    VERIFIER,
    call,
    cancel,
    cancelled_call,
    client,
    generate,
    round_,
)

from specmesh.traces.analysis.cancellation import CancelledCalls, cancellations, stop_times

ANSWER = [client(0, 100), generate(0, 100), round_(0, 100)]


def test_work_has_stopped_when_the_last_server_has_ended_its_span():
    spans = [
        *ANSWER,
        cancel(20, 22),
        *cancelled_call("draft", DRAFTER, (5, 21), (6, 23)),
        *cancelled_call("verify", VERIFIER, (10, 21.5), (11, 27)),
    ]
    (found,) = cancellations(spans)
    assert len(found.calls) == 2
    assert found.ended_ms == 1.5
    assert found.stopped_ms == 7


def test_a_server_that_was_done_before_does_not_make_the_stop_earlier_than_the_call():
    spans = [*ANSWER, cancel(20, 22), *cancelled_call("draft", DRAFTER, (5, 21), (6, 19))]
    (found,) = cancellations(spans)
    assert (found.ended_ms, found.stopped_ms) == (1, 1)


def test_a_call_that_never_reached_its_server_ends_at_the_orchestrator():
    spans = [*ANSWER, cancel(20, 22), *cancelled_call("draft", DRAFTER, (19, 21), None)]
    assert [each.stopped_ms for each in cancellations(spans)] == [1]


def test_a_decision_that_finds_nothing_under_way_is_left_out():
    spans = [*ANSWER, cancel(20, 20.1), *call("draft", DRAFTER, (5, 15), (6, 14))]
    assert cancellations(spans) == []


def test_calls_cancelled_at_the_end_of_the_answer_are_nobodys_rejection():
    spans = [*ANSWER, cancel(20, 22), *cancelled_call("draft", DRAFTER, (5, 99), (6, 99))]
    assert cancellations(spans) == []


def test_each_decision_has_its_own_calls_and_traces_do_not_mix():
    first = [
        *ANSWER,
        cancel(20, 22),
        *cancelled_call("draft", DRAFTER, (5, 21), (6, 23)),
        cancel(40, 42),
        *cancelled_call("draft", DRAFTER, (30, 41), (31, 44), n=2),
    ]
    second = [replace(span, trace_id="u") for span in first[:6]]
    assert [each.stopped_ms for each in cancellations(first + second)] == [3, 4, 3]


def stopped_after(milliseconds):
    return CancelledCalls(0, (), milliseconds / 10, milliseconds)


def test_stop_times_are_percentiles_over_all_cancellations():
    times = stop_times([stopped_after(n) for n in range(1, 102)])
    assert (times.p50_ms, times.p99_ms) == (51, pytest.approx(100))
    assert (times.orchestrator_p50_ms, times.count) == (5.1, 101)
    alone = stop_times([stopped_after(3)])
    assert (alone.p50_ms, alone.p99_ms) == (3, 3)
    assert stop_times([]) is None
