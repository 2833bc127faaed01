"""A drafter that has been bad for a while, and becomes good."""

from __future__ import annotations

import pytest
from tests.simulation.meshes import mesh_of

from specmesh.decoding.predict.acceptance_rate import MeshAcceptance
from specmesh.orchestrator.strategies import STRATEGIES
from specmesh.orchestrator.strategies.base import Goal
from specmesh.simulation.clock import Clock
from specmesh.simulation.mesh import SimulatedMesh
from specmesh.simulation.models import AcceptanceRates
from specmesh.simulation.run import simulate_on

NUM_TOKENS = 300


@pytest.mark.parametrize("name", ["speculative", "tree", "dsi", "branch-prediction", "auto"])
def test_it_is_used_again_within_a_few_answers(name):
    mesh = SimulatedMesh(Clock(), mesh_of(0.03, [0.003], measures=True), seed=0)
    everyone = MeshAcceptance()

    def num_drafted(number: int, alpha: float) -> int:
        strategy = STRATEGIES[name](Goal(NUM_TOKENS, acceptance=everyone))
        models = AcceptanceRates(alpha, runner_up=0.02).models(seed=0)
        (answer,) = simulate_on(mesh, [(0.0, strategy)], models, prompts=[(number,)])
        return answer.num_drafted_tokens

    before = [num_drafted(number, 0.03) for number in range(3)]
    after = [num_drafted(number, 0.85) for number in range(3, 9)]
    assert before[-1] < NUM_TOKENS / 2 < after[-1]
