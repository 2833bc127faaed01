"""The benchmark of traces, on a small store of made-up answers."""

from statistics import median

import grpc
import pytest
from tests.client.spans import VERIFIER, cancel, cancelled_call, client, generate, round_
from tests.traces.otlp import answer

from specmesh.bench.traces.__main__ import _prompts
from specmesh.bench.traces.answers import TracedLoad, ask_for_all
from specmesh.bench.traces.multiply import multiplied
from specmesh.bench.traces.path import path_findings
from specmesh.bench.traces.store import QUERIES, fill, time_lists, time_shows
from specmesh.cli.local.models import WaitingModels
from specmesh.client import AsyncClient, SpecmeshError
from specmesh.client.testing import FakeMesh
from specmesh.traces.analysis.path_parts import PathActivity
from specmesh.traces.spans import spans_from
from specmesh.traces.store.limits import MIN_BYTES, StoreLimits
from specmesh.traces.store.reader import StoreReader
from specmesh.traces.trace import Trace

SAMPLES = [answer(1, num_rounds=3), answer(2, num_rounds=30, strategy="speculative")]


LOAD = TracedLoad(prompts=("a", "b"), strategies=("dsi",), num_tokens=2, concurrency=2)


async def test_answers_for_which_there_is_no_room_are_asked_for_again():
    with FakeMesh() as mesh:
        for _ in range(3):
            mesh.fail(grpc.StatusCode.RESOURCE_EXHAUSTED, "OVERLOADED", retry_after_s=0.01)
        mesh.answer("x", "y")
        mesh.answer("x", "y")
        async with AsyncClient(mesh.address, max_retries=0) as client:
            assert len(await ask_for_all(client, LOAD)) == 2


async def test_an_answer_that_fails_ends_the_measurement_with_its_error():
    with FakeMesh() as mesh:
        for _ in range(2):
            mesh.fail(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD", field="prompt")
        async with AsyncClient(mesh.address, max_retries=0) as client:
            with pytest.raises(SpecmeshError, match="as the test wants it"):
                await ask_for_all(client, LOAD)


def test_copies_are_traces_of_their_own():
    copies = list(multiplied(SAMPLES, 1000))
    summaries = [copy.summary for copy in copies]
    assert sum(each.num_spans for each in summaries) >= 1000
    assert len({each.trace_id for each in summaries}) == len(copies)
    assert [each.start_ns for each in summaries] == sorted({each.start_ns for each in summaries})


def test_a_store_with_many_traces_lists_and_shows_at_once(tmp_path):
    """As `specmesh bench traces store`, whose million spans answer in the same time."""
    path = tmp_path / "many.sqlite"
    fill(path, multiplied(SAMPLES, 100_000), StoreLimits())
    with StoreReader(path) as reader:
        assert reader.extent().num_spans >= 100_000
    lists = time_lists(path)
    assert lists.keys() == QUERIES.keys()
    # Medians: the machine may have other things to do.
    assert max(median(times) for times in lists.values()) < 200
    assert median(time_shows(path, ("last", "slowest"))) < 500


def test_an_overfilled_store_keeps_to_its_limit(tmp_path):
    samples = [answer(number, num_rounds=300) for number in range(3)]
    peak = fill(
        tmp_path / "s.sqlite", multiplied(samples, 150_000), StoreLimits(max_bytes=MIN_BYTES)
    )
    assert MIN_BYTES / 2 < peak <= MIN_BYTES


def test_the_orchestrators_own_time_is_found_and_named():
    traces = [Trace.of(list(spans_from(groups))) for groups in SAMPLES]
    found = path_findings(traces, None)
    assert (found.num_answers, found.num_incomplete) == (2, 0)
    assert found.orchestrator_p50_share == 0  # the made-up rounds are all verification
    assert sum(part.p50_share for part in found.parts) > 0.99
    assert {part.part for part in found.parts} >= {PathActivity.QUEUE, PathActivity.OWN}
    assert found.stops is None


def test_it_tells_how_soon_useless_work_stops():
    spans = [
        *(client(0, 100), generate(0, 100), round_(0, 100), cancel(20, 22)),
        *cancelled_call("verify", VERIFIER, (10, 21.5), (11, 27)),
    ]
    stops = path_findings([Trace.of(spans)], None).stops
    assert stops is not None
    assert (stops.count, stops.p99_ms, stops.orchestrator_p99_ms) == (1, 7, 1.5)


def test_prompts_of_many_answers_stay_within_the_vocabulary():
    models = WaitingModels(target_ms=1, drafter_ms=1, acceptance=1)
    assert max(map(max, _prompts(1_000, real=False))) < models.vocab_size
