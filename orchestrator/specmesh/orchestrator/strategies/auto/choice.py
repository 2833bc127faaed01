"""The policy of ``auto``: the strategy that is expected to be the fastest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from specmesh.decoding.predict.acceptance_rate import (
    DRAFTER,
    HEADS_LEVELS,
    OTHER_OUTCOMES,
    TREE_LEVELS,
    MeshAcceptance,
)
from specmesh.orchestrator.strategies.auto.rates import DrafterRates, HeadsRates
from specmesh.orchestrator.strategies.events import Capacity

ENOUGH: Final = 12
"""Trials of all answers after which a rate is known."""
ALONE: Final = "autoregressive"
PAYS: Final = 1.1
"""The factor by which a strategy must be expected to be faster than the target alone."""
CLEARLY: Final = 1.1
"""The factor by which a strategy must be faster than the current one to replace it."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A strategy, and the reason for it in words."""

    strategy: str
    reason: str
    lookahead: int | None = None
    """Number of tokens to draft, if it does not decide that itself."""
    tentative: bool = False
    """Whether to choose again as soon as more is known."""


def choose(capacity: Capacity, acceptance: MeshAcceptance, former: Choice | None) -> Choice:
    """Return the best strategy for the rest of an answer whose drafts have that ``acceptance``."""
    if _unmeasured(capacity, acceptance):
        return _first(capacity)
    rates = expected_rates(capacity, acceptance)
    if not rates:
        return _first(capacity)
    best = max(rates, key=rates.__getitem__)
    alone_s = capacity.alone_s
    assert alone_s
    if rates[best] * alone_s < PAYS:
        if acceptance.exploration.tries(_tried_cost(capacity)):
            tried = "heads-and-drafter" if capacity.heads_depth else "speculative"
            return Choice(tried, "to see whether drafts pay again", lookahead=1)
        return Choice(ALONE, "drafts do not pay")
    if former is not None and former.strategy in rates:
        if rates[best] <= CLEARLY * rates[former.strategy]:
            best = former.strategy
    return Choice(best, f"expected {rates[best]:.1f} tokens/s")


def _tried_cost(capacity: Capacity) -> float:
    """Return the time of a round that tries a draft, as a share of one without."""
    costs = capacity.heads_costs or capacity.drafter_costs
    assert costs is not None
    return (costs.explored_s + costs.token_s) / costs.alone_s


def _first(capacity: Capacity) -> Choice:
    """Return the strategy that measures what is not known yet."""
    if capacity.heads_depth:
        return Choice("heads-and-drafter", "nothing is known yet", tentative=True)
    if capacity.drafters:
        return Choice("speculative", "nothing is known yet", tentative=True)
    return Choice("autoregressive", "there is no drafter and there are no heads")


def _unmeasured(capacity: Capacity, acceptance: MeshAcceptance) -> bool:
    """Return whether the costs of something that the mesh has are unknown."""
    drafts = capacity.drafters and (
        capacity.drafter_costs is None or acceptance.num_trials(DRAFTER) < ENOUGH
    )
    heads = capacity.heads_depth and capacity.heads_costs is None
    return bool(drafts or heads) or not capacity.alone_s


def _tried(acceptance: MeshAcceptance, source: str, otherwise: float) -> float:
    return acceptance.alpha(source) if acceptance.num_trials(source) >= ENOUGH else otherwise


def expected_rates(capacity: Capacity, acceptance: MeshAcceptance) -> Mapping[str, float]:
    """Return the tokens per second that each strategy is expected to yield, as far as its costs are
    known; empty if none are."""
    rates: dict[str, float] = {}
    drafter = heads = None
    known = 0.0
    if capacity.drafters and (costs := capacity.drafter_costs) is not None and costs.alone_s:
        num = max(1, capacity.num_verifiers)
        alpha = known = _tried(acceptance, DRAFTER, max(0.7, acceptance.alpha(HEADS_LEVELS)))
        gamma = _tried(acceptance, OTHER_OUTCOMES, 0.5)
        levels = _tried(acceptance, TREE_LEVELS, alpha + (1 - alpha) * 0.35)
        drafter = DrafterRates(costs, alpha, gamma, levels, num)
        rates["speculative"] = drafter.speculative
        rates["tree"] = drafter.tree
        rates["exhaustive"] = drafter.exhaustive
        if num > 1 or costs.period_s:
            rates["dsi"] = drafter.dsi
    if capacity.heads_depth and (costs := capacity.heads_costs) is not None and costs.alone_s:
        heads = HeadsRates(costs, _tried(acceptance, HEADS_LEVELS, max(0.7, known)), capacity.heads_depth)
        rates["heads"] = heads.heads
        if drafter is not None:
            rates["heads-and-drafter"] = heads.with_drafter(drafter)
    return rates
