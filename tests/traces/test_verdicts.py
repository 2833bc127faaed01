"""A call that brings several verdicts: each belongs to the verification that it answers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.client.spans import ORCHESTRATOR, VERIFIER, call, generate, span

from specmesh.traces.analysis.breakdown import breakdown
from specmesh.traces.analysis.verdicts import answering, ended_with_the_first
from specmesh.traces.spans import SpanKind
from specmesh.traces.summary import summarise
from specmesh.traces.trace import Trace

MS = 1_000_000


def verdict(number, start_ms, end_ms, forward_ms):
    times = start_ms, end_ms
    told = {"further": number, "forward_ms": float(forward_ms)}
    name = "specmesh.verdict"
    return span(f"v{number}", "verify1s", name, SpanKind.INTERNAL, VERIFIER, *times, **told)


def further(number, start_ms, end_ms):
    told = {"further": number, "further.of": "verify1"}
    times, name = (start_ms, end_ms), "specmesh.verify"
    return span(f"f{number}", "g", name, SpanKind.CLIENT, ORCHESTRATOR, *times, **told)


def several():
    """The first verdict takes from 3 to 12, and the others 10 each, with hops of 1."""
    first, whole = call("verify", VERIFIER, (2, 13), (3, 32))
    return [
        replace(generate(0, 40), parent_span_id=""),
        *(replace(first, parent_span_id="g"), whole),
        *(verdict(n, 2 + 10 * n, 12 + 10 * n, 9) for n in (1, 2)),
        *(further(n, 4 + 10 * n, 13 + 10 * n) for n in (1, 2)),
    ]


def test_each_verdict_answers_its_verification():
    found = {each.span_id: each for each in answering(ended_with_the_first(several()))}
    for number in (1, 2):
        answer = found[f"v{number}"]
        assert (answer.parent_span_id, answer.kind) == (f"f{number}", SpanKind.SERVER)
        # It had begun before the verdict before it arrived.
        assert (answer.start_ns, answer.end_ns) == (
            (4 + 10 * number) * MS,
            (12 + 10 * number) * MS,
        )
    assert found["verify1s"].end_ns == 12 * MS


def test_time_is_that_of_the_replica():
    shares = {
        each.node: each for each in breakdown(answering(ended_with_the_first(several()))).nodes
    }
    assert shares[VERIFIER].num_calls == 3
    assert shares[VERIFIER].path_ms > 25


def test_the_parts_of_serial_calls_add_up_to_the_time_in_which_the_node_was_busy():
    """A forward may have begun before the verification that it answers, which makes it longer than
    that took; what another does not compute is its own time nevertheless."""
    forwards_ms = {"v1": 50.0, "v2": 3.0}
    spans = [
        replace(each, attributes={**each.attributes, "specmesh.forward_ms": forward_ms})
        if (forward_ms := forwards_ms.get(each.span_id))
        else each
        for each in several()
    ]
    answered = answering(ended_with_the_first(spans))
    (found,) = (each for each in breakdown(answered).nodes if each.node == VERIFIER)
    parts_ms = found.queue_ms + found.forward_ms + found.other_ms
    assert parts_ms == pytest.approx(found.busy_ms)
    (last,) = (each for each in answered if each.span_id == "v2")
    assert found.other_ms >= last.duration_ms - 3


def test_what_is_lost_leaves_the_others_as_they_are():
    spans = [each for each in several() if each.span_id not in {"verify1s", "f2"}]
    assert answering(ended_with_the_first(spans)) == spans


def test_the_clock_of_a_replica_is_right_though_its_call_outlasts_the_first_verification():
    trace = Trace.of(several())
    assert not trace.corrections


def test_no_span_is_missing():
    assert summarise(several()).num_missing == 0
