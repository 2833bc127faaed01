"""Spans wait until their trace's root has ended; late ones follow the decision."""

import pytest
from tests.traces.otlp import ANSWER, answer, group, make_span

from specmesh.traces.collector.arrival import arrivals, put_together
from specmesh.traces.collector.buffer import BufferLimits, TraceBuffer
from specmesh.traces.collector.sampling import KeepAll
from specmesh.traces.spans import spans_from


class Keep:
    """Keeps the traces of given numbers, and notes what it was asked."""

    def __init__(self, *numbers):
        self.numbers = numbers
        self.asked = []

    def keeps(self, trace_id, root, now_s):
        self.asked.append((int.from_bytes(trace_id), root.kind, root.failed))
        return int.from_bytes(trace_id) in self.numbers


def take(buffer, groups, now_s):
    buffer.take(arrivals(groups), now_s)


def names(traces):
    return [sorted(span.name for span in spans_from(put_together(spans))) for spans in traces]


def test_a_kept_trace_leaves_once_no_more_spans_have_come_for_a_while():
    buffer = TraceBuffer(Keep(1), BufferLimits(settle_s=2.0))
    orchestrator, verifier = answer(1)
    take(buffer, [orchestrator], 0.0)
    assert names(buffer.due(1.9)) == []
    take(buffer, [verifier], 1.9)
    assert names(buffer.due(3.8)) == []
    assert names(buffer.due(3.9)) == [
        sorted([ANSWER, "specmesh.round", "specmesh.verify", "Verify"])
    ]
    assert names(buffer.due(9.0)) == []


def test_the_decision_waits_for_the_root_and_goes_by_it():
    keep = Keep()
    buffer = TraceBuffer(keep, BufferLimits())
    orchestrator, verifier = answer(1, failed=True)
    take(buffer, [verifier], 0.0)
    assert keep.asked == []
    take(buffer, [orchestrator], 1.0)
    assert keep.asked == [(1, f"{ANSWER} dsi", True)]


@pytest.mark.parametrize(
    ("attributes", "failed"),
    [
        ({"http__response__status_code": 404}, True),
        ({"http__response__status_code": 200, "error__type": "rate_limit_exceeded"}, True),
        ({"rpc__response__status_code": "RESOURCE_EXHAUSTED"}, True),
        ({"http__response__status_code": 200}, False),
        ({"http__response__status_code": 499}, False),
        ({"rpc__response__status_code": "CANCELLED"}, False),
    ],
)
def test_a_request_that_was_refused_has_failed_though_its_span_is_no_error(attributes, failed):
    keep = Keep()
    take(
        TraceBuffer(keep, BufferLimits()), [group("gateway", make_span(1, "x", **attributes))], 0.0
    )
    assert keep.asked == [(1, "x ", failed)]


def test_late_spans_follow_the_decision():
    buffer = TraceBuffer(Keep(1), BufferLimits(settle_s=2.0))
    for number in (1, 2):
        take(buffer, answer(number), 0.0)
    assert len(names(buffer.due(2.0))) == 1
    for number in (1, 2):
        take(buffer, [group("drafter", make_span(number, "late", parent=b"x" * 8))], 60.0)
    assert names(buffer.due(62.0)) == [["late"]]
    assert names(buffer.flush(63.0)) == []


def test_a_trace_without_a_root_is_decided_about_by_its_longest_span_in_the_end():
    keep = Keep(1)
    buffer = TraceBuffer(keep, BufferLimits(patience_s=30.0, settle_s=2.0))
    short, long = (make_span(1, name, 0, ms, parent=b"p" * 8) for name, ms in (("a", 1), ("b", 9)))
    take(buffer, [group("verifier", short, long)], 0.0)
    assert names(buffer.due(29.0)) == []
    assert names(buffer.due(30.0)) == [["a", "b"]]
    assert [kind for _, kind, _ in keep.asked] == ["b "]


def test_a_failed_request_below_a_callers_own_span_has_failed():
    keep = Keep()
    buffer = TraceBuffer(keep, BufferLimits(patience_s=30.0))
    refused = {"rpc__response__status_code": "RESOURCE_EXHAUSTED", "specmesh__strategy": "dsi"}
    gateway = make_span(1, "POST /v1/chat/completions", 0, 9, parent=b"p" * 8)
    call = make_span(1, "specmesh.generate", 1, 8, parent=gateway.span_id, kind=3)
    answered = make_span(1, ANSWER, 2, 3, parent=call.span_id, **refused)
    take(buffer, [group("gateway", gateway, call), group("orchestrator", answered)], 0.0)
    take(buffer, [group("orchestrator", make_span(2, ANSWER, parent=b"p" * 8, **refused))], 0.0)
    assert names(buffer.due(30.0)) == []
    assert keep.asked == [(1, "POST /v1/chat/completions ", True), (2, f"{ANSWER} dsi", True)]


def test_at_the_end_all_that_is_left_is_decided_about():
    buffer = TraceBuffer(Keep(1), BufferLimits())
    take(buffer, [answer(1)[1], answer(2)[1]], 0.0)
    assert names(buffer.flush(0.1)) == [["Verify"]]


def test_memory_is_bounded_and_the_longest_waiting_goes_first():
    keep = Keep(1, 3)
    buffer = TraceBuffer(keep, BufferLimits(max_spans=10))
    for number in range(1, 6):  # 4 spans each, none of them a root
        spans = [make_span(number, f"{number}", parent=b"p" * 8) for _ in range(4)]
        take(buffer, [group("verifier", *spans)], float(number))
    assert names(buffer.due(6.0)) == [["1"] * 4, ["3"] * 4]
    assert [number for number, *_ in keep.asked] == [1, 2, 3]


def test_one_trace_cannot_fill_it():
    buffer = TraceBuffer(KeepAll(), BufferLimits(max_spans_of_trace=3, settle_s=0.0))
    spans = [make_span(1, "s", parent=b"p" * 8) for _ in range(5)]
    take(buffer, [group("verifier", *spans)], 0.0)
    assert names(buffer.flush(1.0)) == [["s"] * 3]
    assert buffer.num_dropped == 2


def test_the_root_of_a_trace_that_is_too_large_is_not_among_what_is_dropped():
    keep = Keep(1)
    buffer = TraceBuffer(keep, BufferLimits(max_spans_of_trace=3, settle_s=0.0))
    spans = [make_span(1, "s", parent=b"p" * 8) for _ in range(4)]
    orchestrator, _ = answer(1, failed=True)
    take(buffer, [group("verifier", *spans), orchestrator], 0.0)
    assert keep.asked == [(1, f"{ANSWER} dsi", True)]
    assert names(buffer.due(0.0)) == [["s", "s", "s", ANSWER]]


def test_memory_is_bounded_also_while_nobody_takes_traces_from_it():
    buffer = TraceBuffer(KeepAll(), BufferLimits(max_spans=2))
    for number in range(1, 8):
        take(buffer, [group("verifier", make_span(number, f"{number}"))], float(number))
    assert buffer.num_dropped == 3
    assert names(buffer.flush(9.0)) == [["1"], ["2"], ["3"], ["4"]]


def test_memory_is_bounded_by_the_size_of_spans_and_not_by_their_number_alone():
    keep = Keep(1, 3)
    buffer = TraceBuffer(keep, BufferLimits(max_bytes=10_000))
    for number in range(1, 6):  # some 4,000 bytes each, none of them a root
        take(buffer, [group("verifier", large_span(number))], float(number))
    assert names(buffer.due(6.0)) == [["1"], ["3"]]
    assert [number for number, *_ in keep.asked] == [1, 2, 3]
    assert buffer.num_dropped == 0


def test_large_spans_are_dropped_while_nobody_takes_traces_from_it():
    buffer = TraceBuffer(KeepAll(), BufferLimits(max_bytes=5_000))
    for number in range(1, 6):
        take(buffer, [group("verifier", large_span(number))], float(number))
    assert buffer.num_dropped == 2
    assert names(buffer.flush(9.0)) == [["1"], ["2"], ["3"]]
    take(buffer, [group("verifier", large_span(6))], 10.0)
    assert names(buffer.flush(11.0)) == [["6"]]


def large_span(number):
    return make_span(number, f"{number}", parent=b"p" * 8, noise="x" * 4_000)
