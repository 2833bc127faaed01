"""Strategies: sans-IO state machines that turn events into commands, and their registry."""

from __future__ import annotations

from collections.abc import Mapping

from specmesh.orchestrator.strategies.auto.strategy import Auto
from specmesh.orchestrator.strategies.autoregressive import Autoregressive
from specmesh.orchestrator.strategies.base import Strategy
from specmesh.orchestrator.strategies.branch_prediction import BranchPrediction, Exhaustive
from specmesh.orchestrator.strategies.dsi import DSI
from specmesh.orchestrator.strategies.filter import ConfidenceFilter
from specmesh.orchestrator.strategies.heads import Heads
from specmesh.orchestrator.strategies.heads_and_drafter import HeadsAndDrafter
from specmesh.orchestrator.strategies.speculative import Speculative
from specmesh.orchestrator.strategies.tree import Tree

STRATEGIES: Mapping[str, type[Strategy]] = {
    "autoregressive": Autoregressive,
    "speculative": Speculative,
    "dsi": DSI,
    "branch-prediction": BranchPrediction,
    "exhaustive": Exhaustive,
    "filter": ConfidenceFilter,
    "tree": Tree,
    "heads": Heads,
    "heads-and-drafter": HeadsAndDrafter,
    "auto": Auto,
}
"""All strategies, by the names that requests use."""

LOSSLESS = tuple(name for name, strategy in STRATEGIES.items() if strategy.lossless)
