"""A crowd that meets a mesh which has just started."""

from __future__ import annotations

import pytest
from tests.simulation.meshes import mesh_of

from specmesh.decoding.predict.acceptance_rate import MeshAcceptance
from specmesh.orchestrator.strategies import STRATEGIES
from specmesh.orchestrator.strategies.base import Goal
from specmesh.orchestrator.strategies.commands import Command, Draft
from specmesh.orchestrator.strategies.events import Capacity, Event
from specmesh.simulation.clock import Clock
from specmesh.simulation.mesh import SimulatedMesh
from specmesh.simulation.models import AcceptanceRates
from specmesh.simulation.run import simulate_on


@pytest.mark.parametrize("name", ["speculative", "tree", "dsi"])
def test_few_answers_draft_before_anything_is_measured(name):
    everyone = MeshAcceptance()
    crowd = [STRATEGIES[name](Goal(100, acceptance=everyone)) for _ in range(64)]
    commands = [each.start(Capacity()) for each in crowd]
    drafting = [any(isinstance(command, Draft) for command in each) for each in commands]
    assert sum(drafting) == 4
    assert all(commands), "some answers do nothing"


@pytest.mark.parametrize("name", ["speculative", "tree", "dsi"])
def test_an_answer_that_measures_drafts_until_something_is_learnt(name, monkeypatch):
    """Its first draft reads the prompt, and so does not tell what a token takes."""
    num_drafts = 0

    def observe(_now: float, what: Command | Event) -> None:
        nonlocal num_drafts
        num_drafts += isinstance(what, Draft)

    mesh = SimulatedMesh(Clock(), mesh_of(0.02, [0.002], measures=True), seed=0)
    monkeypatch.setattr(mesh, "drafted", lambda *_: None)
    strategy = STRATEGIES[name](Goal(20, acceptance=MeshAcceptance()))
    models = AcceptanceRates(0.5).models(seed=0)
    simulate_on(mesh, [(0.0, strategy)], models, prompts=[(0,)], observe=observe)
    assert num_drafts >= 8


@pytest.mark.parametrize("name", ["speculative", "tree", "dsi"])
def test_what_an_answer_asks_for_is_drafted_at_once(name):
    everyone = MeshAcceptance()
    crowd = [STRATEGIES[name](Goal(100, lookahead=3, acceptance=everyone)) for _ in range(64)]
    for each in crowd:
        assert any(isinstance(command, Draft) for command in each.start(Capacity()))
