"""The costs of the mesh per token: figures from counters, and a short run."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from multiprocessing import resource_tracker

import pytest

from specmesh.bench.capacity.cells import CapacityCell, CapacityGrid
from specmesh.bench.capacity.figures import (
    Counters,
    Pauses,
    RoundFigures,
    ServedCalls,
    medians,
    messages_per_token,
    most_at_once,
    per_call,
    per_token,
    served_by,
)
from specmesh.bench.capacity.load import failure_of
from specmesh.bench.capacity.placement import MODELS_AND_ORCHESTRATOR, Role, plan_cores
from specmesh.load.transports.observation import Observation, RequestOutcome
from specmesh.tools.kit.processor_time import processor_s

BEFORE = Counters(
    processor_s={"orchestrator": 1.0, "verifier": 2.0, "drafter": 3.0},
    served={"verifier": ServedCalls(5, 10), "drafter": ServedCalls(20, 20)},
)
AFTER = Counters(
    processor_s={"orchestrator": 1.6, "verifier": 2.2, "drafter": 3.0},
    served={"verifier": ServedCalls(25, 60), "drafter": ServedCalls(20, 20)},
)
ROUND = RoundFigures(
    tokens_per_s=100.0,
    us_per_token=dict.fromkeys(Role, 10.0),
    us_per_call=dict.fromkeys(Role, 20.0),
    messages_per_token=3.0,
    pauses=Pauses(p50=1.0, p99=2.0, longest=3.0),
    at_once=4,
    resident_kb=1000.0,
    floor_us_per_message=30.0,
)
METRICS = """
# TYPE rpc_server_call_duration_seconds histogram
rpc_server_call_duration_seconds_bucket{rpc_method="a.Verifier/VerifyEach",le="+Inf"} 40.0
rpc_server_call_duration_seconds_count{rpc_method="a.Verifier/VerifyEach",status="OK"} 30.0
rpc_server_call_duration_seconds_count{rpc_method="a.Verifier/VerifyEach",status="CANCELLED"} 9.0
rpc_server_call_duration_seconds_count{rpc_method="a.Verifier/Verify",status="OK"} 1.0
rpc_server_call_duration_seconds_count{rpc_method="a.Models/GetModel",status="OK"} 5.0
# TYPE specmesh_queue_duration_seconds histogram
specmesh_queue_duration_seconds_count 90.0
"""


def test_processor_time_is_per_token_and_per_call_and_the_orchestrator_s_per_call_it_makes():
    assert per_token(BEFORE, AFTER, tokens=100) == pytest.approx(
        {"orchestrator": 6000, "verifier": 2000, "drafter": 0}
    )
    found = per_call(BEFORE, AFTER)
    assert found.pop("drafter") is None
    assert found == pytest.approx({"orchestrator": 12_000, "verifier": 4000})


def test_a_verdict_is_a_message_as_is_a_request_and_a_chunk_and_a_draft_is_two():
    drafted = replace(AFTER, served={**AFTER.served, "drafter": ServedCalls(30, 30)})
    assert messages_per_token(BEFORE, AFTER, chunks=40, tokens=100) == 1.1
    assert messages_per_token(BEFORE, drafted, chunks=40, tokens=100) == 1.4


def test_requests_are_those_of_the_role_s_own_methods_whatever_their_status():
    assert served_by(Role.VERIFIER, METRICS) == ServedCalls(40, 90)
    assert served_by(Role.DRAFTER, METRICS).requests == 0


def test_answers_overlap_from_their_first_to_their_last_chunk():
    assert most_at_once([]) == 0
    assert most_at_once([(0, 1), (2, 3)]) == 1
    assert most_at_once([(0, 4), (1, 2), (1.5, 3), (2.5, 5)]) == 3


def test_medians_are_taken_of_all_but_what_is_a_maximum():
    found = medians(
        [
            ROUND,
            replace(ROUND, tokens_per_s=300.0, us_per_call=dict.fromkeys(Role)),
            replace(ROUND, tokens_per_s=200.0, pauses=Pauses(p50=1.0, p99=4.0, longest=9.0)),
        ]
    )
    assert found.tokens_per_s == 200
    assert found.us_per_call["verifier"] == 20
    assert found.pauses == Pauses(p50=1.0, p99=2.0, longest=9.0)


def test_the_floor_is_the_relay_s_time_for_as_many_messages():
    grid = CapacityGrid(
        strategies=("dsi",),
        streams=(2, 300),
        tracing=(0.0,),
        workers=(1,),
        tokens=64,
        rounds=3,
        acceptance=0.8,
    )
    few, many = grid.loads("dsi")
    assert (few.answers, few.num_tokens) == (2, 256)
    assert (many.answers, grid.num_rounds) == (1, 8)
    cell = CapacityCell(
        load=few, tracing=0.0, workers=1, figures=ROUND, kb_per_stream=None, failures={}
    )
    assert cell.floor_us_per_token == 90


def test_workers_have_several_connections_each():
    grid = CapacityGrid(
        strategies=("dsi",),
        streams=(8,),
        tracing=(0.0,),
        workers=(1, 2),
        tokens=8,
        rounds=1,
        acceptance=0.8,
    )
    assert grid.num_rounds == 4
    assert grid.num_generators(plan_cores((0, 1), Role.ORCHESTRATOR)) == 16


def test_an_answer_that_is_too_short_has_failed_too():
    seen = Observation(0, 0, 0, due_s=0.0, sent_s=0.0, outcome=RequestOutcome.ANSWERED)
    seen.num_output_tokens = 7
    assert failure_of(seen, 7) == ""
    assert failure_of(seen, 8) == "SHORT"
    assert failure_of(replace(seen, outcome=RequestOutcome.FAILED, reason="X"), 7) == "X"


@pytest.mark.parametrize(
    ("cores", "alone", "drafter", "rest"),
    [
        ((), set(), set(), set()),
        ((3,), {3}, {3}, {3}),
        ((0, 1, 2), {0}, {1, 2}, {1, 2}),
        ((0, 1, 2, 3), {0}, {2}, {3}),
        ((0, 1, 2, 3, 4, 5), {0}, {2}, {3, 4, 5}),
    ],
)
def test_the_measured_role_has_a_core_for_itself(cores, alone, drafter, rest):
    plan = plan_cores(cores, Role.VERIFIER)
    assert plan.roles[Role.VERIFIER] == plan.alone == alone
    assert plan.roles[Role.DRAFTER] == drafter
    assert plan.rest == rest
    assert plan.num_generators == max(1, len(rest))


def test_the_processor_time_of_a_process_is_known_by_its_id():
    before, own = processor_s(os.getpid()), time.process_time()
    assert before == pytest.approx(own, abs=0.05)
    sum(range(100_000))
    assert processor_s(os.getpid()) > before
    with pytest.raises(ProcessLookupError):
        processor_s(2**22 + 1)  # beyond Linux's ids


@pytest.mark.parametrize(
    ("flag", "value"), [("--tracing", "2"), ("--tracing", "on"), ("--strategy", "heads")]
)
def test_what_is_not_known_is_refused(bench, flag, value):
    done = bench("capacity", flag, value)
    assert done.exit_code == 2
    assert value in done.stderr


@pytest.mark.parametrize("gateway", [("--gateway",), ("--role", "gateway")])
def test_a_gateway_reaches_one_worker_so_that_more_are_refused(bench, gateway):
    done = bench("capacity", "--workers", "2", *gateway)
    assert done.exit_code == 2
    assert "--workers" in done.stderr


@pytest.fixture
def tracker():
    """Starts the process that comes with the first pool, and stays."""
    resource_tracker.ensure_running()


def test_a_short_run_reports_costs_beside_the_relay_s(bench, tracker, no_process_left):
    few = "--streams 4 --streams 1 --tokens 8 --rounds 1"
    kinds = "--strategy speculative --tracing 1 --role drafter"
    done = bench("capacity", *few.split(), *kinds.split(), "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["alone"] == "drafter"
    one, four = found["rows"]
    assert (one["streams"], four["streams"]) == (1, 4)
    assert one["kb_per_stream"] is None
    for row in (one, four):
        assert (row["strategy"], row["tracing"]) == ("speculative", 1.0)
        assert row["tokens_per_s"] > 0
        for figures in (row["us_per_token"], row["us_per_call"]):
            assert figures.keys() == set(MODELS_AND_ORCHESTRATOR)
            assert min(figures.values()) > 0
        assert tuple(row["us_per_token"]) == MODELS_AND_ORCHESTRATOR  # as the table shows them
        assert 0 < row["pause_ms"]["p50"] <= row["pause_ms"]["p99"] <= row["pause_ms"]["longest"]
        assert 1 <= row["at_once"] <= row["streams"]
        assert 0 < row["floor_us_per_token"] < row["us_per_token"]["orchestrator"]
        assert row["failures"] == {}


def test_a_gateway_costs_processor_time_as_well(bench, tracker, no_process_left):
    few = "--streams 2 --tokens 8 --rounds 1"
    done = bench("capacity", *few.split(), "--role", "gateway", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["alone"] == "gateway"
    for row in found["rows"]:
        assert row["us_per_token"]["gateway"] > 0
        assert row["failures"] == {}


def test_a_gateway_has_a_core_if_there_is_one():
    grid = CapacityGrid(
        strategies=("dsi",),
        streams=(8,),
        tracing=(0.0,),
        workers=(1,),
        tokens=8,
        rounds=1,
        acceptance=0.8,
        through_gateway=True,
    )
    assert plan_cores(range(4), Role.GATEWAY, grid.roles).roles[Role.GATEWAY] == {0}
    assert plan_cores(range(6), Role.ORCHESTRATOR, grid.roles).roles[Role.GATEWAY] == {3}
