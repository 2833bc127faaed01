"""Calls that name their cause: the path follows what really made the next step possible."""

from dataclasses import replace
from itertools import pairwise

import pytest
from tests.client.spans import (
    DRAFTER,
    ORCHESTRATOR,
    VERIFIER,
    call,
    cancelled_call,
    commit,
    generate,
    round_,
    span,
)

from specmesh.traces.analysis.critical_path import BEGIN, END, REACT, critical_path
from specmesh.traces.analysis.path_parts import PathActivity, stretches
from specmesh.traces.spans import SpanKind


def caused(spans, event, reaction_ms, run_delay_ms=0):
    out, *served = spans
    told = {
        "specmesh.cause": event,
        "specmesh.reaction_ms": float(reaction_ms),
        "specmesh.run_delay_ms": float(run_delay_ms),
    }
    return [replace(out, attributes={**out.attributes, **told}), *served]


def walked(*spans):
    root = replace(spans[0], parent_span_id="")
    found = critical_path(root, [root, *spans[1:]])
    return [
        (each.span.span_id, each.start_ns / 1e6, each.end_ns / 1e6, each.why)
        for each in reversed(found)
    ]


def test_a_verification_waits_for_the_draft_that_streams_on():
    """As in DSI: while one verification runs, the draft makes the next one possible."""
    draft = caused(cancelled_call("draft", DRAFTER, (2, 90), (2, 90)), "start", 0.5)[0]
    first = caused(call("verify", VERIFIER, (12, 40), (12, 40)), "drafted", 1)[0]
    second = caused(call("verify", VERIFIER, (50, 80), (50, 80), n=2), "drafted", 2)[0]
    rounds = [round_(2, 40), round_(50, 81, n=2)]
    assert walked(generate(0, 100), *rounds, draft, first, second, commit(82, 85)) == [
        ("g", 0, 2, BEGIN),
        ("draft1", 2, 48, ""),
        ("g", 48, 50, REACT),
        ("verify2", 50, 80, ""),
        ("g", 80, 82, REACT),
        ("k1", 82, 85, ""),
        ("g", 85, 100, END),
    ]


def test_spans_may_be_nested_to_any_depth():
    def nested(n):
        return span(f"s{n}", f"s{n - 1}", "s", SpanKind.INTERNAL, ORCHESTRATOR, 0, 5000 - n)

    found = walked(*map(nested, range(3000)))
    assert (len(found), found[0][0], found[-1][0]) == (3000, "s2999", "s0")


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), float("-inf"), 1e308, -5.0])
def test_times_that_are_none_count_as_nothing(wrong):
    draft, verify = (
        caused(call(name, node, at, at), event, reaction_ms=wrong, run_delay_ms=wrong)
        for name, node, at, event in (
            ("draft", DRAFTER, (2, 10), "start"),
            ("verify", VERIFIER, (12, 20), "drafted"),
        )
    )
    assert verify[0].number("specmesh.reaction_ms") == 0.0
    path = walked(generate(0, 30), round_(1, 25), draft[0], verify[0])
    assert [each[0] for each in path] == ["g", "draft1", "g", "verify1", "g"]


def test_after_a_rejection_it_waits_for_the_verdict_whatever_else_runs():
    first = caused(call("verify", VERIFIER, (2, 40), (2, 40)), "start", 1)[0]
    other = caused(call("verify", VERIFIER, (4, 60), (4, 60), n=3), "drafted", 1)[0]
    second = caused(call("verify", VERIFIER, (43, 90), (43, 90), n=2), "verified", 3)[0]
    spans = [generate(0, 100), round_(2, 41), round_(43, 91, n=2), round_(4, 60, n=3)]
    assert walked(*spans, first, second, other) == [
        ("g", 0, 2, BEGIN),
        ("verify1", 2, 40, ""),
        ("g", 40, 43, REACT),
        ("verify2", 43, 90, ""),
        ("g", 90, 100, END),
    ]


def test_a_call_that_outlasts_its_round_is_waited_for_by_later_ones():
    """No time of the request is its own while the verification of an earlier round runs."""
    outlasting = call("verify", VERIFIER, (10, 70), (10, 70))[0]
    spans = [generate(0, 100), round_(0, 30), round_(30, 75, n=2), outlasting]
    assert walked(*spans) == [("g", 0, 10, ""), ("verify1", 10, 70, ""), ("g", 70, 100, "")]


def test_a_cancelled_verification_is_no_cause():
    told = call("verify", VERIFIER, (2, 30), (2, 30))[0]
    cancelled = call("verify", VERIFIER, (3, 39), (3, 39), n=3)[0]
    cancelled = replace(cancelled, attributes={"specmesh.cancelled": True})
    second = caused(call("verify", VERIFIER, (40, 90), (40, 90), n=2), "verified", 2)[0]
    rounds = [round_(2, 31), round_(40, 90, n=2), round_(3, 39, n=3)]
    path = walked(generate(0, 90), *rounds, told, cancelled, second)
    assert ("verify1", 2, 30, "") in path
    assert "verify3" not in {span_id for span_id, *_ in path}


def test_after_any_other_event_it_is_what_ended_last():
    told = call("verify", VERIFIER, (2, 30), (2, 30))[0]
    later = caused(call("verify", VERIFIER, (40, 90), (40, 90), n=2), "capacity", 2)[0]
    assert walked(generate(0, 90), round_(2, 30), round_(40, 90, n=2), told, later) == [
        ("g", 0, 2, BEGIN),
        ("verify1", 2, 30, ""),
        ("g", 30, 40, REACT),
        ("verify2", 40, 90, ""),
    ]


def test_the_first_call_has_nothing_before_it():
    first = caused(call("verify", VERIFIER, (40, 90), (40, 90)), "start", 2)[0]
    assert walked(generate(0, 90), round_(0, 90), first) == [
        ("g", 0, 40, BEGIN),
        ("verify1", 40, 90, ""),
    ]


@pytest.mark.parametrize("reaction_ms", [0.0, 5.0, 500.0])
def test_it_stays_within_the_request_whatever_the_spans_say(reaction_ms):
    steps = [
        caused(call("verify", VERIFIER, (n, n + 12), (n, n + 12), n=n), "verified", reaction_ms)[0]
        for n in range(5, 80, 9)
    ]
    extra = span("x", "g", "x", SpanKind.INTERNAL, ORCHESTRATOR, 0, 3)
    rounds = [round_(n, n + 1, n=n) for n in range(5, 80, 9)]
    path = walked(generate(0, 100), extra, *rounds, *steps)
    assert path[0][1] == 0
    assert path[-1][2] == 100
    for (_, _, end, _), (_, start, _, _) in pairwise(path):
        assert end == start


@pytest.mark.parametrize(
    ("run_delay_ms", "shown"),
    [
        (0, [(PathActivity.OWN, 10)]),
        (7, [(PathActivity.CORE, 7), (PathActivity.OWN, 3)]),
        (12, [(PathActivity.CORE, 10)]),  # two counters were not read at once
    ],
)
def test_what_the_orchestrator_waited_for_a_core_is_told_from_its_own_time(run_delay_ms, shown):
    first = caused(call("verify", VERIFIER, (2, 40), (2, 40)), "start", 1)[0]
    second = call("verify", VERIFIER, (50, 90), (50, 90), n=2)
    second = caused(second, "verified", 10, run_delay_ms)[0]
    root = replace(generate(0, 100), parent_span_id="")
    spans = [root, round_(2, 41), round_(50, 91, n=2), first, second]
    found = stretches(critical_path(root, spans), spans)
    assert [
        (each.part, each.ms) for each in found if each.start_ns in range(40_000_000, 50_000_000)
    ] == shown
    assert sum(each.ms for each in found) == root.duration_ms
