"""The figures of ``specmesh bench overload``, and a short run."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from specmesh.bench.overload.cells import (
    MAX_REFUSED_MS,
    WAITED_S,
    OverloadCell,
    is_refused,
    num_broken_promises,
)
from specmesh.bench.overload.gauges import GaugeLog, GaugeSample, gauge
from specmesh.bench.overload.report import summary
from specmesh.load.transports.observation import Observation, RequestOutcome

GOOD = OverloadCell(
    door="grpc",
    factor=2.0,
    capacity=10.0,
    offered=20.0,
    goodput=9.5,
    refused_share=0.5,
    refused_p50_ms=5.0,
    refused_p99_ms=50.0,
    accepted_failed=0,
    rooms_before=(16, 16),
    rooms_peak=(20, 18),
    rooms_after=(16, 16),
    queue_peak=12,
    lag_p99_ms=1.0,
    num_repeated=32,
    num_changed=0,
    memory_mb={"verifier": (1000.0, 1000.0)},
)


def seen(outcome: RequestOutcome, reason: str = "", *, e2e_s: float = 0.01, num_chunks: int = 0):
    times = {"due_s": 1.0, "sent_s": 1.0, "ended_s": 1.0 + e2e_s}
    ended = {"outcome": outcome, "reason": reason, "num_chunks": num_chunks}
    return Observation(0, 0, 0, **times, **ended)


@pytest.mark.parametrize("reason", ["OVERLOADED", "overloaded"])
def test_a_refusal_by_either_door_breaks_no_promise_if_it_comes_at_once(reason):
    refused = seen(RequestOutcome.FAILED, reason)
    late = seen(RequestOutcome.FAILED, reason, e2e_s=2 * WAITED_S)
    answered = seen(RequestOutcome.ANSWERED)
    assert [is_refused(each) for each in (refused, late, answered)] == [True, True, False]
    assert num_broken_promises([refused, answered]) == 0
    assert num_broken_promises([refused, late]) == 1


def test_whatever_else_fails_was_accepted():
    begun = seen(RequestOutcome.FAILED, "OVERLOADED", num_chunks=3)
    timed_out = seen(RequestOutcome.FAILED, "DEADLINE_EXCEEDED")
    assert not is_refused(begun)
    assert num_broken_promises([begun, timed_out]) == 2


@pytest.mark.parametrize(
    "change",
    [
        {"goodput": 8.9},
        {"refused_p99_ms": MAX_REFUSED_MS + 1},
        {"accepted_failed": 1},
        {"rooms_after": (16, 20)},
        {"num_changed": 1},
    ],
)
def test_a_load_is_good_if_all_that_was_promised_holds(change):
    assert GOOD.is_good
    assert not replace(GOOD, **change).is_good


def test_a_load_that_happens_to_be_below_the_capacity_is_judged_by_itself():
    assert replace(GOOD, factor=1.0, offered=8.0, goodput=7.5).is_good


def test_the_summary_is_of_the_first_door_but_for_the_slowest_refusals():
    cells = [
        replace(GOOD, factor=1.0, refused_p99_ms=None),
        GOOD,
        replace(GOOD, door="gateway", capacity=8.0, goodput=7.0, refused_p99_ms=80.0),
    ]
    assert summary(cells) == {"capacity": 10.0, "goodput_at_2x": 9.5, "refused_p99_ms": 80.0}
    assert summary(cells[:1]) == {"capacity": 10.0, "goodput_at_2x": None, "refused_p99_ms": None}


def test_gauges_are_read_with_and_without_labels():
    text = '# HELP a b\nroom{otel_scope_name="specmesh"} 16.0\nqueue 3.0\nroom_more 5.0\n'
    assert (gauge(text, "room"), gauge(text, "queue"), gauge(text, "missing")) == (16, 3, 0)


def test_peaks_are_of_each_orchestrator():
    log = GaugeLog([GaugeSample(0.0, (16, 20), 3), GaugeSample(0.5, (24, 16), 1)])
    assert log.peak_rooms == (24, 20)
    assert log.peak_queue == 3
    assert log.at(0.4).rooms == (24, 16)


def test_a_short_run_reports_each_door_and_load(bench, no_process_left):
    short = "--factor 1 --factor 2 --users 4 --warm-up 0.2 --seconds 1 --settle 0 --tokens 4"
    done = bench("overload", "--simulated", *short.split(), "--json")
    found = json.loads(done.stdout)
    assert [(each["door"], each["factor"]) for each in found["cells"]] == [
        *(("grpc", 1.0), ("grpc", 2.0), ("gateway", 1.0), ("gateway", 2.0)),
    ]
    assert found["overload"]["capacity"] > 0
    assert found["overload"]["goodput_at_2x"] > 0
    assert done.exit_code == (0 if found["good"] else 1)
    for cell in found["cells"]:
        assert cell["num_repeated"] > 0
        assert cell["num_changed"] == 0
        assert set(cell["memory_mb"]) == {
            *("verifier", "drafter-0", "orchestrator-0", "orchestrator-1", "gateway")
        }
        assert all(min(each) > 0 for each in cell["memory_mb"].values())
