"""A crowd that meets a mesh which has just started."""

from __future__ import annotations

import pytest

from specmesh.decoding.predict.acceptance_rate import MeshAcceptance
from specmesh.orchestrator.strategies import STRATEGIES
from specmesh.orchestrator.strategies.base import Goal
from specmesh.orchestrator.strategies.commands import Draft
from specmesh.orchestrator.strategies.events import Capacity


@pytest.mark.parametrize("name", ["speculative", "tree", "dsi"])
def test_few_answers_draft_before_anything_is_measured(name):
    everyone = MeshAcceptance()
    crowd = [STRATEGIES[name](Goal(100, acceptance=everyone)) for _ in range(64)]
    commands = [each.start(Capacity()) for each in crowd]
    drafting = [any(isinstance(command, Draft) for command in each) for each in commands]
    assert sum(drafting) == 4
    assert all(commands), "some answers do nothing"


@pytest.mark.parametrize("name", ["speculative", "tree", "dsi"])
def test_what_an_answer_asks_for_is_drafted_at_once(name):
    everyone = MeshAcceptance()
    crowd = [STRATEGIES[name](Goal(100, lookahead=3, acceptance=everyone)) for _ in range(64)]
    for each in crowd:
        assert any(isinstance(command, Draft) for command in each.start(Capacity()))
