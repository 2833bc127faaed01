"""Which node an answer's time is put down to."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.client.spans import (
    CLIENT,
    DRAFTER,
    ORCHESTRATOR,
    VERIFIER,
    call,
    client,
    commit,
    generate,
    round_,
    span,
)

from specmesh.traces.analysis.breakdown import STORE, breakdown
from specmesh.traces.analysis.clocks import corrected
from specmesh.traces.analysis.critical_path import critical_path
from specmesh.traces.spans import SpanKind


def by_node(result):
    return {row.node: row for row in result.nodes}


LOCKSTEP = [
    client(0, 100),
    generate(2, 98),
    round_(4, 96),
    *call("draft", DRAFTER, (5, 25), (6, 24), queue_ms=1.0, forward_ms=15.0),
    *call("verify", VERIFIER, (26, 86), (28, 84), queue_ms=4.0, forward_ms=50.0),
    commit(88, 94),
]


def test_each_node_gets_its_calls_split_by_what_they_spent():
    rows = by_node(breakdown(LOCKSTEP))
    verifier = rows[VERIFIER]
    assert (verifier.num_calls, verifier.busy_ms) == (1, 56)
    assert (verifier.queue_ms, verifier.forward_ms, verifier.other_ms) == (4, 50, 2)
    assert verifier.hop_ms == 4
    assert (rows[DRAFTER].other_ms, rows[DRAFTER].hop_ms) == (2, 2)


def test_the_orchestrator_keeps_what_it_did_not_spend_in_calls():
    rows = by_node(breakdown(LOCKSTEP))
    assert rows[ORCHESTRATOR].other_ms == 96 - 20 - 60 - 6
    assert rows[ORCHESTRATOR].busy_ms == 96 - 20 - 60 - 6
    assert rows[ORCHESTRATOR].hop_ms == 4
    assert (rows[STORE].num_calls, rows[STORE].other_ms) == (1, 6)


def test_critical_parts_sum_up_to_the_wall_time():
    result = breakdown(LOCKSTEP)
    rows = by_node(result)
    assert result.wall_ms == 100
    assert (rows[VERIFIER].path_ms, rows[DRAFTER].path_ms, rows[STORE].path_ms) == (60, 20, 6)
    assert rows[ORCHESTRATOR].path_ms == 14
    assert sum(result.share(row) for row in result.nodes) == pytest.approx(1)
    assert result.nodes[0].node == VERIFIER


def test_overlapping_calls_are_busy_once_and_only_the_awaited_one_is_critical():
    """Two verifications side by side; the answer waits for the second."""
    spans = [
        client(0, 100),
        generate(0, 100),
        round_(0, 100),
        *call("verify", VERIFIER, (0, 60), (0, 60), forward_ms=60.0),
        round_(20, 100, n=2),
        *call("verify", VERIFIER, (20, 100), (20, 100), n=2, forward_ms=80.0),
    ]
    row = by_node(breakdown(spans))[VERIFIER]
    assert (row.num_calls, row.busy_ms, row.forward_ms) == (2, 100, 140)
    assert row.path_ms == pytest.approx(100)


def test_drafting_hidden_behind_a_verification_is_busy_but_not_critical():
    spans = [
        client(0, 100),
        generate(0, 100),
        round_(0, 100),
        *call("verify", VERIFIER, (0, 100), (0, 100), forward_ms=100.0),
        *call("draft", DRAFTER, (10, 90), (10, 90), forward_ms=80.0),
    ]
    row = by_node(breakdown(spans))[DRAFTER]
    assert (row.busy_ms, row.path_ms) == (80, 0)


def test_a_draft_that_streams_on_is_critical_up_to_the_verification_it_made_possible():
    spans = [
        client(0, 100),
        generate(0, 100),
        round_(0, 100),
        *call("draft", DRAFTER, (0, 55), (0, 55)),
        *call("verify", VERIFIER, (50, 100), (50, 100)),
    ]
    rows = by_node(breakdown(spans))
    assert (rows[DRAFTER].path_ms, rows[VERIFIER].path_ms) == (50, 50)


def test_a_call_cancelled_before_it_arrived_costs_its_caller():
    spans = [
        client(0, 100),
        generate(0, 100),
        round_(0, 100),
        call("draft", DRAFTER, (0, 40), (0, 0))[0],
    ]
    rows = by_node(breakdown(spans))
    assert DRAFTER not in rows
    assert rows[ORCHESTRATOR].path_ms == 100


def test_a_server_that_outlives_its_cancelled_caller_makes_no_negative_hop():
    spans = [*LOCKSTEP[:3], *call("draft", DRAFTER, (5, 10), (6, 30))]
    assert by_node(breakdown(spans))[DRAFTER].hop_ms == 0


def test_a_node_whose_clock_is_off_changes_nothing_but_its_place():
    """Spans an hour ahead are brought back into their callers, with all below them."""
    hour_ns = 3_600 * 10**9
    ahead = [
        each
        if each.node == CLIENT
        else replace(each, start_ns=each.start_ns + hour_ns, end_ns=each.end_ns + hour_ns)
        for each in LOCKSTEP
    ]
    spans, _ = corrected(ahead)
    assert breakdown(spans) == breakdown(LOCKSTEP)


def test_spans_of_several_traces_are_refused():
    with pytest.raises(ValueError, match="one trace"):
        breakdown([])


@given(st.lists(st.tuples(st.integers(0, 90), st.integers(0, 90)), max_size=12))
def test_any_children_leave_no_gap_and_no_overlap_on_the_path(intervals):
    root = generate(10, 80)
    children = [
        span(f"x{n}", "g", "x", SpanKind.INTERNAL, ORCHESTRATOR, min(pair), max(pair))
        for n, pair in enumerate(intervals)
    ]
    segments = critical_path(root, [root, *children])
    assert segments[0].end_ns == root.end_ns
    assert segments[-1].start_ns == root.start_ns
    for later, earlier in itertools.pairwise(segments):
        assert later.start_ns == earlier.end_ns
    for segment in segments:
        assert segment.start_ns < segment.end_ns
        assert segment.span.start_ns <= segment.start_ns
        assert segment.end_ns <= segment.span.end_ns
