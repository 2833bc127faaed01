"""How fast the mesh is, as seen from the orchestrator."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest
from opentelemetry.context import Context
from tests.orchestrator.conftest import until
from tests.orchestrator.model import VOCAB_SIZE
from tests.orchestrator.peers import START, Drafter, Verifier

from specmesh.decoding.sampling import Sampling
from specmesh.decoding.trees.tree import EMPTY, TokenTree
from specmesh.mesh.v1alpha1 import drafter_pb2, verifier_pb2
from specmesh.orchestrator.replicas.calls.mesh_calls import Calls
from specmesh.orchestrator.replicas.calls.request_context import RequestContext
from specmesh.orchestrator.replicas.latencies.running_medians import (
    MIN_HALF,
    WINDOW,
    Latencies,
    RunningMedian,
    RunningSlope,
)
from specmesh.orchestrator.replicas.prefixes.prefix import CommittedPrefix
from specmesh.orchestrator.replicas.replica_pools import ReplicaPools
from specmesh.orchestrator.strategies.commands import Draft, Verify
from specmesh.orchestrator.strategies.events import Capacity


def calls_on(mesh: ReplicaPools) -> Calls:
    deadline = asyncio.get_running_loop().time() + 10
    prefix = CommittedPrefix("s", (1, 2, 3))
    return Calls(RequestContext(mesh, prefix, Sampling(), vocab_size=VOCAB_SIZE, deadline=deadline))


async def draft(calls: Calls, command: Draft) -> None:
    await calls.draft(command, calls.command_context(Context(), START), lambda drafted: None)


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


def slope_of(calls: Iterable[tuple[int, float]]) -> float:
    slope = RunningSlope()
    for num_tokens, seconds in calls:
        slope.add(num_tokens, seconds)
    return slope.value


def test_wider_calls_tell_what_a_token_costs():
    widths = [1, 5, 2, 8, 3, 3, 7, 1] * 4
    assert slope_of((width, 0.01 + 0.0004 * width) for width in widths) == 0.0004


def test_slow_calls_are_not_taken_for_wide_ones():
    widths = [1, 5, 2, 8, 3, 3, 7, 1] * 4
    calls = [(width, 0.01 + 0.0004 * width) for width in widths]
    calls[3], calls[10] = (8, 1.0), (2, 1.0)
    assert slope_of(calls) == 0.0004


def test_calls_that_get_faster_as_they_get_wider_cost_nothing_more():
    assert slope_of((width, 0.1 - 0.001 * width) for width in range(30)) == 0.0


@pytest.mark.parametrize("num_calls", [0, 1, 2 * MIN_HALF - 1])
def test_a_few_calls_tell_nothing(num_calls):
    assert slope_of((width, 0.01 * width) for width in range(num_calls)) == 0.0


def test_a_slope_that_lets_nobody_draft_is_forgotten():
    calls = [(width, 0.01 * width) for width in range(WINDOW)]
    assert slope_of([*calls, *[(1, 0.01)] * WINDOW]) == 0.0


def test_calls_of_one_width_leave_what_is_known():
    calls = [(width, 0.01 * width) for width in range(WINDOW)]
    assert slope_of([*calls, *[(4, 0.04)] * WINDOW]) == 0.01


def test_models_are_told_apart():
    latencies = Latencies()
    latencies.drafter_s("small").add(0.001)
    assert latencies.drafter_s("tiny").value is None
    assert latencies.drafter_s("small").value == 0.001


async def test_capacity_is_what_is_ready_and_how_fast_it_was(connect):
    drafters = [Drafter("small"), Drafter("tiny"), Drafter("small")]
    mesh = (await connect([Verifier(), Verifier()], drafters)).mesh
    calls = calls_on(mesh)
    assert calls.capacity() == Capacity(num_verifiers=2, drafters=("small", "tiny"))
    drafters[0].level_ms = drafters[2].level_ms = 2.0
    drafters[1].level_ms = 0.5
    await draft(calls, Draft(1, (), depth=4, levels_per_message=2))
    await draft(calls, Draft(2, (), depth=1, drafter=1))
    await calls.verify(Verify(3, (), EMPTY), calls.command_context(Context(), START))
    capacity = calls.capacity()
    assert capacity.drafter_s == pytest.approx(0.002)
    assert mesh.latencies.drafter_s("tiny").value == pytest.approx(0.0005)
    assert 0 < capacity.target_s < 10


async def test_draft_that_is_shorter_than_asked_for_is_not_taken_for_a_fast_one(connect):
    drafter = Drafter()
    drafter.level_ms, drafter.max_levels = 2.0, 3
    calls = calls_on((await connect([Verifier()], [drafter])).mesh)
    await draft(calls, Draft(1, (), depth=8, levels_per_message=8))
    assert calls.capacity().drafter_s == pytest.approx(0.002)


async def test_verifications_of_all_widths_tell_what_a_token_costs(connect, monkeypatch):
    calls = calls_on((await connect([Verifier()])).mesh)
    added: list[int] = []
    monkeypatch.setattr(RunningSlope, "add", lambda self, width, seconds: added.append(width))
    for task, width in enumerate((0, 3, 1)):
        command = Verify(task, (), TokenTree.chain(range(width)))
        await calls.verify(command, calls.command_context(Context(), START))
    assert added == [0, 3, 1]


async def test_tokens_of_a_prompt_are_not_charged_to_the_draft(connect, monkeypatch):
    verifier = Verifier()

    def read_the_prompt(message: verifier_pb2.VerifyResponse) -> None:
        message.cost.num_computed_tokens = 4

    verifier.corrupt = read_the_prompt
    calls = calls_on((await connect([verifier])).mesh)
    added: list[int] = []
    monkeypatch.setattr(RunningSlope, "add", lambda self, width, seconds: added.append(width))
    await calls.verify(
        Verify(1, (), TokenTree.chain((1, 2))), calls.command_context(Context(), START)
    )
    assert added == [4]


@pytest.mark.parametrize(("num_read", "counts"), [(4, True), (60, False)])
async def test_draft_that_had_to_read_the_text_first_is_not_taken_for_a_slow_one(
    connect, num_read, counts
):
    drafter = Drafter()
    drafter.level_ms = 2.0

    def reads(message: drafter_pb2.DraftResponse) -> None:
        message.cost.num_computed_tokens = num_read

    drafter.corrupt = reads
    calls = calls_on((await connect([Verifier()], [drafter])).mesh)
    await draft(calls, Draft(1, (), depth=1))
    assert (calls.capacity().drafter_s is not None) is counts


async def test_a_kind_of_drafter_keeps_its_name_when_another_leaves(connect):
    drafters = [Drafter("small"), Drafter("tiny")]
    mesh = (await connect([Verifier()], drafters)).mesh
    calls = calls_on(mesh)
    await drafters[0].die()
    gone = mesh.drafters.peers[0]
    await until(lambda: not gone.ready, gone)
    assert calls.capacity().drafters == ("tiny",)


async def test_drafter_that_does_not_say_what_it_took_is_not_taken_for_infinitely_fast(connect):
    mesh = (await connect([Verifier()], [Drafter()])).mesh
    calls = calls_on(mesh)
    await draft(calls, Draft(1, (), depth=2))
    assert calls.capacity().drafter_s is None


async def test_mesh_without_drafters_still_counts_one(connect):
    """Its drafts fail, and the strategies go on without."""
    capacity = calls_on((await connect([Verifier()])).mesh).capacity()
    assert capacity == Capacity(num_verifiers=1, drafters=(0,))
