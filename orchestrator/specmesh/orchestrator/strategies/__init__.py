"""Strategies: sans-IO state machines that turn events into commands, and their registry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from specmesh.orchestrator.strategies.autoregressive import Autoregressive
from specmesh.orchestrator.strategies.base import Goal, Strategy
from specmesh.orchestrator.strategies.branch_prediction import BranchPrediction
from specmesh.orchestrator.strategies.dsi import DSI
from specmesh.orchestrator.strategies.filter import ConfidenceFilter
from specmesh.orchestrator.strategies.speculative import Speculative

STRATEGIES: Mapping[str, Callable[[Goal], Strategy]] = {
    "autoregressive": Autoregressive,
    "speculative": Speculative,
    "dsi": DSI,
    "branch-prediction": BranchPrediction,
    "exhaustive": partial(BranchPrediction, num_branches=None),
    "filter": ConfidenceFilter,
}

NEEDS_FILTER = frozenset({"filter"})
"""Strategies that ask the confidence service, and whose text may differ from the target's."""

NEEDS_DRAFTER = frozenset(STRATEGIES) - {"autoregressive"}
"""Strategies that a mesh without any drafter must refuse."""
