"""Clocks of machines are told apart by the calls between them."""

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
    cancelled_call,
    client,
    generate,
    round_,
)

from specmesh.traces.analysis.clocks import corrected

SPANS = [
    client(0, 100),
    generate(2, 98),
    round_(3, 97),
    *call("verify", VERIFIER, (10, 60), (14, 59), queue_ms=1.0, forward_ms=40.0),
    *call("draft", DRAFTER, (62, 80), (63, 79), forward_ms=15.0),
    round_(80, 97, n=2),
    *call("verify", VERIFIER, (81, 96), (81.5, 95.5), n=2, forward_ms=13.9),
]


def shifted(spans, node, ms):
    ns = int(ms * 1e6)
    return [
        replace(span, start_ns=span.start_ns + ns, end_ns=span.end_ns + ns)
        if span.node == node
        else span
        for span in spans
    ]


def test_clocks_that_may_agree_are_left_alone():
    assert corrected(SPANS) == (SPANS, [])
    assert corrected(shifted(SPANS, VERIFIER, 0.3))[1] == []


def test_a_clock_that_is_off_is_set_to_the_middle_of_what_fits_all_calls():
    spans, (found,) = corrected(shifted(SPANS, VERIFIER, 3.2))
    assert (found.node, found.contradictory) == (VERIFIER, False)
    # The second call leaves least room: it may begin 0.5 ms earlier, its work end 0.6 ms later.
    assert found.offset_ms == pytest.approx(-3.2 + 0.05)
    assert found.uncertainty_ms == pytest.approx(0.55)
    assert abs(found.offset_ms + 3.2) <= found.uncertainty_ms
    by_id = {span.span_id: span for span in spans}
    assert by_id["verify2"].start_ns <= by_id["verify2s"].start_ns


def test_the_uncertainty_is_unknown_where_only_one_side_is_bounded():
    cut = cancelled_call("verify", VERIFIER, (10, 60), (14, 59))
    spans = [*SPANS[:3], *cut]
    _, found = corrected(shifted(spans, VERIFIER, -30))
    assert [each.uncertainty_ms for each in found] == [None]


def test_an_offset_adds_up_along_the_calls():
    ahead = SPANS
    for node in (ORCHESTRATOR, VERIFIER, DRAFTER):
        ahead = shifted(ahead, node, -5000)
    spans, found = corrected(ahead)
    assert {each.node for each in found} == {ORCHESTRATOR, VERIFIER, DRAFTER}
    assert len({each.offset_ms for each in found}) == 1  # among themselves they agree
    assert found[0].offset_ms == pytest.approx(5000, abs=found[0].uncertainty_ms)
    assert min(span.start_ns for span in spans) == 0
    assert CLIENT not in {each.node for each in found}


def test_a_server_that_outlasts_a_cancelled_call_proves_nothing():
    late = cancelled_call("verify", VERIFIER, (20, 30), (21, 45), n=3)
    assert corrected([*SPANS, round_(20, 30, 3), *late])[1] == []


def test_a_clock_that_was_set_meanwhile_is_said_to_contradict_itself():
    jumped = [
        *SPANS[:3],
        *shifted(SPANS[3:5], VERIFIER, 200),
        *SPANS[5:],
    ]
    _, (found,) = corrected(jumped)
    assert found.contradictory
    assert found.uncertainty_ms > 50


@given(
    verifier=st.floats(-1e5, 1e5),
    drafter=st.floats(-1e5, 1e5),
    orchestrator=st.floats(-1e5, 1e5),
)
def test_every_offset_is_found_within_its_uncertainty(verifier, drafter, orchestrator):
    offsets = {VERIFIER: verifier, DRAFTER: drafter, ORCHESTRATOR: orchestrator}
    skewed = SPANS
    for node, ms in offsets.items():
        skewed = shifted(skewed, node, ms)
    spans, found = corrected(skewed)
    corrections = {each.node: each for each in found}
    for span in spans:
        if span.parent_span_id and (span.node != CLIENT):
            parent = next(each for each in spans if each.span_id == span.parent_span_id)
            assert span.start_ns >= parent.start_ns - 2
    for node, ms in offsets.items():
        if node in corrections:
            each = corrections[node]
            assert each.offset_ms + ms == pytest.approx(0, abs=each.uncertainty_ms + 5)
