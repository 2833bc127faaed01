"""A drafter that has been bad for a while, and becomes good."""

from __future__ import annotations

import pytest
from tests.simulation.meshes import mesh_of

from specmesh.decoding.predict.acceptance_rate import MeshAcceptance
from specmesh.orchestrator.strategies import STRATEGIES
from specmesh.orchestrator.strategies.base import Goal
from specmesh.simulation.clock import Clock
from specmesh.simulation.law import Law
from specmesh.simulation.mesh import SimulatedMesh
from specmesh.simulation.models import AcceptanceRates
from specmesh.simulation.run import simulate_on

NUM_TOKENS = 200
TARGET = Law.fixed(30, 0.3)


@pytest.mark.parametrize(
    ("name", "num_answers"),
    [
        *((name, 1) for name in ("speculative", "tree", "dsi", "branch-prediction", "auto")),
        *((name, 8) for name in ("speculative", "dsi", "auto")),
    ],
)
def test_it_is_used_again_within_a_few_rounds_of_answers(name, num_answers):
    mesh = SimulatedMesh(Clock(), mesh_of(TARGET, [0.003], batch=8, measures=True), seed=0)
    everyone = MeshAcceptance()

    def num_drafted(number: int, alpha: float) -> float:
        goal = Goal(NUM_TOKENS, acceptance=everyone)
        crowd = [(0.0, STRATEGIES[name](goal)) for _ in range(num_answers)]
        models = AcceptanceRates(alpha, runner_up=0.02).models(seed=0)
        prompts = [(number, each) for each in range(num_answers)]
        answers = simulate_on(mesh, crowd, models, prompts=prompts)
        return sum(answer.num_drafted_tokens for answer in answers) / num_answers

    before = [num_drafted(number, 0.03) for number in range(3)]
    after = [num_drafted(number, 0.85) for number in range(3, 7)]
    assert before[-1] < NUM_TOKENS / 2 < after[-1]


def test_a_crowd_seldom_tries_a_good_drafter_whose_tokens_take_others_too_long():
    model = mesh_of(Law.fixed(33, 3), [0.002], batch=4, measures=True)
    mesh = SimulatedMesh(Clock(), model, seed=0)
    everyone = MeshAcceptance()
    crowd = [
        (0.01 * number, STRATEGIES["dsi"](Goal(NUM_TOKENS, acceptance=everyone)))
        for number in range(4)
    ]
    prompts = [(number,) for number in range(4)]
    answers = simulate_on(mesh, crowd, AcceptanceRates(0.8).models(seed=0), prompts=prompts)
    assert sum(answer.num_drafted_tokens for answer in answers) < 0.1 * 4 * NUM_TOKENS
