"""Traces that lost spans are told from those where nothing was to be lost."""

from dataclasses import replace

import pytest
from tests.client.spans import (
    ORCHESTRATOR,
    VERIFIER,
    call,
    cancelled_call,
    client,
    commit,
    generate,
    round_,
)

from specmesh.traces.analysis.completeness import LOST, MissingSpan, gaps, mended, summed_up
from specmesh.traces.analysis.path_parts import PathActivity
from specmesh.traces.trace import Trace

RPC = {"rpc.system.name": "grpc"}


def with_rpc(spans):
    out, *served = spans
    return [replace(out, attributes={**out.attributes, **RPC}), *served]


WHOLE = [
    client(0, 100),
    generate(2, 98),
    round_(4, 96),
    *with_rpc(call("verify", VERIFIER, (26, 86), (28, 84), forward_ms=50.0)),
    commit(88, 94),
]


def without(*ids):
    return [span for span in WHOLE if span.span_id not in ids]


def test_a_whole_trace_has_no_gap():
    assert gaps(WHOLE) == []
    assert mended(WHOLE, []) == WHOLE


def test_a_call_that_was_cancelled_or_failed_needs_no_server():
    cancelled = with_rpc(cancelled_call("verify", VERIFIER, (30, 40), None, n=1))
    failed = [replace(each, span_id="f", is_error=True, attributes=RPC) for each in cancelled]
    rest = without("verify1", "verify1s")
    assert gaps([*rest, *cancelled, *failed]) == []


@pytest.mark.parametrize(
    ("lost", "loss", "said"),
    [
        ("verify1s", MissingSpan.SERVER, "1 span missing below specmesh.verify: its server's"),
        (
            "r1",
            MissingSpan.PARENT,
            "1 span missing, with its children left: 2 x specmesh.commit, specmesh.ver",
        ),
        ("c", MissingSpan.ROOT, "1 span missing above specmesh.v1.GenerationService/Generate"),
    ],
)
def test_each_span_that_is_missed_is_found_and_named(lost, loss, said):
    (gap,) = gaps(without(lost))
    assert gap.loss is loss
    (line,) = summed_up([gap])
    assert line.startswith(said)


def test_alike_gaps_are_told_once():
    calls = [with_rpc(call("verify", VERIFIER, (30, 40), (31, 39), n=n))[0] for n in (2, 3, 4)]
    rounds = [round_(30, 40, n) for n in (2, 3, 4)]
    lines = summed_up(gaps([*WHOLE, *rounds, *calls]))
    assert lines == ["3 spans missing below specmesh.verify: its server's"]


def test_what_is_left_below_a_lost_span_is_not_the_roots_own_time():
    trace = Trace.of(without("r1"))
    (lost,) = [span for span in trace.spans if span.name == LOST]
    assert (lost.parent_span_id, lost.span_id, lost.node) == ("g", "r1", ORCHESTRATOR)
    assert {span.span_id for span in trace.children()["r1"]} == {"verify1", "k1"}
    assert PathActivity.UNKNOWN in {each.part for each in trace.path}
    assert trace.summary.num_missing == 1


def test_the_time_on_the_path_still_sums_up():
    for lost in ("r1", "verify1s", "g", "verify1"):
        trace = Trace.of(without(lost))
        assert sum(each.ms for each in trace.path) == pytest.approx(trace.root.duration_ms)
