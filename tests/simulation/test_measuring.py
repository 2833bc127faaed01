"""A simulated orchestrator that measures learns how fast its mesh is."""

from __future__ import annotations

from dataclasses import replace
from itertools import repeat

import pytest
from tests.simulation.meshes import mesh_of

from specmesh.orchestrator.strategies import STRATEGIES
from specmesh.orchestrator.strategies.base import Goal
from specmesh.orchestrator.strategies.events import Capacity, Drafted, Verified
from specmesh.simulation.clock import Clock
from specmesh.simulation.law import Law
from specmesh.simulation.mesh import SimulatedMesh
from specmesh.simulation.models import AcceptanceRates
from specmesh.simulation.request import SimulatedRequest
from specmesh.simulation.run import crowd_tokens_per_s

MODELS = AcceptanceRates(0.8).models(seed=0)
HOP_S = 0.002


def crowd(strategy, answers, **model):
    """A mesh that has served a crowd, and the crowd's tokens per second."""
    model = {"drafters": (0.003,), "hop_s": HOP_S, "measures": True, **model}
    target = model.pop("target", Law.fixed(32, 2))
    mesh = SimulatedMesh(Clock(), mesh_of(target, model.pop("drafters"), **model), seed=0)
    strategies = (STRATEGIES[strategy](Goal(60)) for _ in repeat(None))
    speed = crowd_tokens_per_s(
        mesh, strategies, MODELS, begin_s=[0.0] * answers, num_tokens=400 * answers
    )
    return mesh, speed


def events_of(mesh, strategy="speculative", tokens=20):
    """The events that the strategy of one answer is told."""
    seen = []
    clock = mesh.clock
    request = SimulatedRequest(
        0, STRATEGIES[strategy](Goal(tokens)), MODELS, mesh, observe=lambda _, it: seen.append(it)
    )
    request.start()
    clock.run(lambda: request.reason is not None)
    return [each for each in seen if isinstance(each, Capacity | Drafted | Verified)]


def test_what_is_measured_of_one_answer_is_the_law_of_the_mesh():
    mesh, _ = crowd("speculative", answers=1)
    capacity = mesh.capacity(num_drafters=1)
    assert capacity.target_token_s == pytest.approx(0.002)
    assert capacity.drafter_s == pytest.approx(0.003)
    mesh, _ = crowd("autoregressive", answers=1)
    capacity = mesh.capacity(num_drafters=1)
    assert capacity.target_s == pytest.approx(0.032 + 2 * HOP_S)
    assert capacity.drafter_s is None


def test_heads_are_measured_apart_from_their_target():
    mesh, _ = crowd("heads", answers=1, heads_s=0.005, target=0.03)
    capacity = mesh.capacity(num_drafters=1)
    assert capacity.heads_s == pytest.approx(0.005)
    assert capacity.target_s == pytest.approx(0.03 + 2 * HOP_S)


def test_a_queue_is_part_of_what_is_measured():
    mesh, speed = crowd("autoregressive", answers=8, target=0.03, hop_s=0.0)
    assert mesh.latencies.target_s.value == pytest.approx(8 * 0.03)
    assert mesh.latencies.target_load.value == 1.0
    assert speed == pytest.approx(1 / 0.03)


def test_a_strategy_is_told_what_was_learnt_before_the_answer_it_was_learnt_from():
    mesh = SimulatedMesh(Clock(), mesh_of(0.03, (0.003,), measures=True), seed=0)
    seen = events_of(mesh)
    first = next(index for index, each in enumerate(seen) if isinstance(each, Drafted))
    drafter = Capacity(drafters=("0",), drafter_s=0.003)
    assert seen[first - 1] == drafter
    first = next(index for index, each in enumerate(seen) if isinstance(each, Verified))
    learnt = replace(drafter, target_s=0.03, target_alone_s=0.03, most_tokens=63.0)
    learnt = replace(learnt, target_decoding_s=0.03)
    assert seen[first - 1] == learnt


def test_an_orchestrator_that_knows_its_mesh_says_nothing_new():
    mesh = SimulatedMesh(Clock(), mesh_of(0.03, (0.003,)), seed=0)
    assert not any(isinstance(each, Capacity) for each in events_of(mesh))
    assert mesh.capacity(num_drafters=1).target_s == pytest.approx(0.03)


def test_the_members_of_a_crowd_ask_again_until_there_are_enough_tokens():
    mesh, speed = crowd("autoregressive", answers=2, target=0.03, num_verifiers=2, hop_s=0.0)
    assert speed == pytest.approx(2 / 0.03)
    assert mesh.clock.now == pytest.approx(400 * 0.03)
