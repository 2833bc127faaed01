"""Strategies: sans-IO state machines that turn events into commands, and their registry."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from specmesh.orchestrator.strategies.autoregressive import Autoregressive
from specmesh.orchestrator.strategies.base import Goal, Strategy
from specmesh.orchestrator.strategies.speculative import Speculative

STRATEGIES: Mapping[str, Callable[[Goal], Strategy]] = {
    "autoregressive": Autoregressive,
    "speculative": Speculative,
}

NEEDS_DRAFTER = frozenset({"speculative"})
"""Strategies that a mesh without any drafter must refuse."""
