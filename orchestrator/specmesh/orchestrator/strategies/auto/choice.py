"""The policy of ``auto``: the strategy that is expected to be the fastest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from specmesh.decoding.predict.acceptance_rate import (
    DRAFTER,
    HEADS_LEVELS,
    MeshAcceptance,
)
from specmesh.orchestrator.strategies.auto.rates import DrafterRates, HeadsRates
from specmesh.orchestrator.strategies.events import Capacity

CLEARLY: Final = 1.05
"""The factor by which a strategy must be faster than the current one to replace it."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A strategy, and the reason for it in words."""

    strategy: str
    reason: str


def choose(capacity: Capacity, acceptance: MeshAcceptance, former: Choice | None) -> Choice:
    """Return the best strategy for the rest of an answer whose drafts have that ``acceptance``."""
    rates = expected_rates(capacity, acceptance)
    if not rates:
        return _first(capacity)
    best = max(rates, key=rates.__getitem__)
    if former is not None and former.strategy in rates:
        if rates[best] <= CLEARLY * rates[former.strategy]:
            best = former.strategy
    return Choice(best, f"expected {rates[best]:.1f} tokens/s")


def _first(capacity: Capacity) -> Choice:
    """Return the strategy that measures what is not known yet."""
    if capacity.heads_depth:
        return Choice("heads-and-drafter", "nothing is known yet")
    if capacity.drafters:
        return Choice("speculative", "nothing is known yet")
    return Choice("autoregressive", "there is no drafter and there are no heads")


def expected_rates(capacity: Capacity, acceptance: MeshAcceptance) -> Mapping[str, float]:
    """Return the tokens per second that each strategy is expected to yield, as far as its costs are
    known; empty if none are."""
    rates: dict[str, float] = {}
    drafter = heads = None
    if capacity.drafters and (costs := capacity.drafter_costs) is not None and costs.alone_s:
        drafter = DrafterRates(costs, acceptance.alpha(DRAFTER), capacity.num_verifiers)
        rates["speculative"] = drafter.speculative
        rates["dsi"] = drafter.dsi
    if capacity.heads_depth and (costs := capacity.heads_costs) is not None and costs.alone_s:
        heads = HeadsRates(costs, acceptance.alpha(HEADS_LEVELS), capacity.heads_depth)
        rates["heads"] = heads.heads
        if drafter is not None:
            rates["heads-and-drafter"] = heads.with_drafter(drafter)
    return rates
