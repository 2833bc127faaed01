"""Paths in words, statistics over many traces, and differences between two."""

from dataclasses import replace

import pytest
from tests.client.spans import DRAFTER, VERIFIER, call, client, commit, generate, round_

from specmesh.traces.analysis.difference import difference
from specmesh.traces.analysis.path_parts import PathActivity, summed
from specmesh.traces.analysis.stats import Percentiles, trace_stats
from specmesh.traces.trace import Trace


def an_answer(forward_ms=50.0):
    """Draft, verify, commit, one after the other."""
    end = 36 + forward_ms
    return Trace.of(
        [
            client(0, end + 14),
            generate(2, end + 12),
            round_(4, end + 10),
            *call("draft", DRAFTER, (5, 25), (6, 24), queue_ms=1.0, forward_ms=15.0),
            *call(
                "verify", VERIFIER, (26, end), (28, end - 2), queue_ms=4.0, forward_ms=forward_ms
            ),
            commit(end + 2, end + 8),
        ]
    )


def parts(trace):
    found = {}
    for part in summed(trace.path):
        key = (part.node.service.removeprefix("specmesh-"), part.part)
        found[key] = found.get(key, 0) + part.ms
    return found


def test_the_path_is_told_by_node_and_by_what_went_on_there():
    trace = an_answer()
    found = parts(trace)
    assert sum(found.values()) == pytest.approx(100)
    assert found == {
        ("verifier", PathActivity.FORWARD): 50,
        ("verifier", PathActivity.QUEUE): 4,
        ("verifier", PathActivity.OWN): 2,
        ("verifier", PathActivity.NETWORK): 4,
        ("drafter", PathActivity.FORWARD): 15,
        ("drafter", PathActivity.QUEUE): 1,
        ("drafter", PathActivity.OWN): 2,
        ("drafter", PathActivity.NETWORK): 2,
        ("redis", PathActivity.STORE): 6,
        ("orchestrator", PathActivity.OWN): 10,
        ("orchestrator", PathActivity.NETWORK): 4,
    }


def test_stats_give_the_share_of_each_node_and_shares_add_up():
    found = trace_stats([an_answer(), an_answer(), an_answer(150.0)])
    assert (found.answers.count, found.answers.p50_ms, found.answers.max_ms) == (3, 100, 200)
    assert found.path[0].node == VERIFIER.label
    assert (found.path[0].part, found.path[0].share) == (PathActivity.FORWARD, 250 / 400)
    assert sum(each.share for each in found.path) == pytest.approx(1)
    verify = next(each for each in found.spans if "VerifierService" in each.name)
    assert (verify.durations.count, verify.forward.p50_ms, verify.queue.p50_ms) == (3, 50, 4)


def test_incomplete_traces_count_for_spans_but_not_for_the_path():
    whole = an_answer()
    broken = Trace.of([span for span in whole.spans if span.span_id != "r1"])
    found = trace_stats([whole, broken])
    assert (found.num_incomplete, found.answers.count) == (1, 2)
    assert found.path[0].ms.count == 1
    assert trace_stats([]) is None


def test_percentiles_lie_between_the_values():
    found = Percentiles.of([10.0, 20.0, 30.0, 40.0])
    assert (found.p50_ms, found.p90_ms, found.max_ms) == (25.0, pytest.approx(37.0), 40.0)


def test_a_difference_says_where_the_second_lost_its_time():
    found = difference(an_answer(), an_answer(150.0))
    assert found.lost_ms == 100
    assert (found.changes[0].service, found.changes[0].part) == ("verifier", PathActivity.FORWARD)
    assert found.changes[0].lost_ms == 100
    assert sum(change.lost_ms for change in found.changes) == pytest.approx(found.lost_ms)


def test_which_replica_answered_makes_no_difference():
    one = an_answer()
    other = replace(VERIFIER, instance="another")
    spans = [replace(s, node=other) if s.node == VERIFIER else s for s in one.spans]
    assert {change.lost_ms for change in difference(one, Trace.of(spans)).changes} == {0}


def test_malformed_spans_above_each_other_end_no_analysis():
    own = replace(client(0, 100), parent_span_id="c")
    one, other = (replace(round_(1, 2, n), parent_span_id=f"r{3 - n}") for n in (1, 2))
    trace = Trace.of([own, generate(2, 98), one, other])
    assert trace.root.span_id == "c"
    assert sum(part.ms for part in summed(trace.path)) == pytest.approx(100)
    assert trace.breakdown().nodes
