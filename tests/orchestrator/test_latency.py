"""How fast the mesh is, as seen from the orchestrator."""

from __future__ import annotations

import time

import pytest
from opentelemetry.context import Context
from tests.orchestrator.model import VOCAB_SIZE
from tests.orchestrator.peers import Drafter, Verifier

from specmesh.decoding.sampling import Sampling
from specmesh.decoding.tree import EMPTY
from specmesh.orchestrator.mesh.calls import Calls, Mesh
from specmesh.orchestrator.mesh.latency import WINDOW, Latencies, RunningMedian
from specmesh.orchestrator.mesh.prefix import CommittedPrefix
from specmesh.orchestrator.strategies.base import Capacity, Draft, Verify


def calls_on(mesh: Mesh) -> Calls:
    deadline = time.monotonic() + 10
    prefix = CommittedPrefix("s", (1, 2, 3))
    return Calls(mesh, prefix, Sampling(), vocab_size=VOCAB_SIZE, deadline=deadline)


async def draft(calls: Calls, command: Draft) -> None:
    async for _ in calls.draft(command, calls.moment(Context())):
        pass


def test_nothing_is_known_before_the_first_value():
    assert RunningMedian().value is None


def test_one_slow_call_does_not_count():
    median = RunningMedian()
    for value in (0.01, 5.0, 0.012):
        median.add(value)
    assert median.value == 0.012


def test_small_changes_do_not_show():
    """Strategies are told of every change."""
    median = RunningMedian()
    seen = set()
    for value in (0.01230, 0.01234, 0.01199, 0.01243):
        median.add(value)
        seen.add(median.value)
    assert seen == {0.012}


def test_old_values_are_forgotten():
    median = RunningMedian()
    for value in [1.0] * WINDOW + [2.0] * (WINDOW // 2 + 1):
        median.add(value)
    assert median.value == 2.0


def test_models_are_told_apart():
    latencies = Latencies()
    latencies.drafter_s("small").add(0.001)
    assert latencies.drafter_s("tiny").value is None
    assert latencies.drafter_s("small").value == 0.001


async def test_capacity_is_what_is_ready_and_how_fast_it_was(connect):
    drafters = [Drafter("small"), Drafter("tiny"), Drafter("small")]
    mesh = (await connect([Verifier(), Verifier()], drafters)).mesh
    calls = calls_on(mesh)
    assert calls.capacity() == Capacity(num_verifiers=2, num_drafters=2)
    drafters[0].level_ms = drafters[2].level_ms = 2.0
    drafters[1].level_ms = 0.5
    await draft(calls, Draft(1, (), depth=4, levels_per_message=2))
    await draft(calls, Draft(2, (), depth=1, drafter=1))
    await calls.verify(Verify(3, (), EMPTY), calls.moment(Context()))
    capacity = calls.capacity()
    assert capacity.drafter_s == pytest.approx(0.002)
    assert mesh.latencies.drafter_s("tiny").value == pytest.approx(0.0005)
    assert 0 < capacity.target_s < 10


async def test_drafter_that_does_not_say_what_it_took_is_not_taken_for_infinitely_fast(connect):
    mesh = (await connect([Verifier()], [Drafter()])).mesh
    calls = calls_on(mesh)
    await draft(calls, Draft(1, (), depth=2))
    assert calls.capacity().drafter_s is None


async def test_mesh_without_drafters_still_counts_one(connect):
    """Its drafts fail, and the strategies go on without."""
    capacity = calls_on((await connect([Verifier()])).mesh).capacity()
    assert capacity == Capacity(num_verifiers=1, num_drafters=1)
