"""Tells in words why a strategy that was named, or that ``auto`` has chosen, has drafted next to
nothing."""

from __future__ import annotations

from typing import Final

from specmesh.decoding.predict.acceptance_rate import DRAFTER, HEADS_CHAIN
from specmesh.decoding.predict.lookahead import MAX_LOOKAHEAD
from specmesh.decoding.predict.round_costs import PAYS, RoundCosts
from specmesh.orchestrator.driver.stats import RequestStats
from specmesh.orchestrator.strategies.base import Goal, Strategy
from specmesh.orchestrator.strategies.events import Capacity

FEWEST_TOKENS: Final = 8
"""Tokens from which on an answer had time to draft."""
NEXT_TO_NOTHING: Final = 0.125
"""The draft tokens for each token of an answer that may come from trials alone."""


def why_undrafted(
    strategy: type[Strategy], goal: Goal, capacity: Capacity, stats: RequestStats
) -> str:
    """Return why an answer by ``strategy`` has drafted next to nothing; empty if it has drafted,
    was too short to, drafts whatever that costs (its ``goal`` has a lookahead), or would draft by
    the price, so that its drafts have failed."""
    num_tokens = stats.num_committed_tokens
    if num_tokens < FEWEST_TOKENS or stats.num_drafted_tokens > NEXT_TO_NOTHING * num_tokens:
        return ""
    if strategy.needs_confidence or goal.lookahead is not None:
        return ""
    if strategy.needs_heads and capacity.heads_depth:
        return _words("the heads are", capacity.heads_costs, goal.acceptance.alpha(HEADS_CHAIN))
    if strategy.asks_drafter and capacity.drafters:
        return _words("the drafter is", capacity.drafter_costs, goal.acceptance.alpha(DRAFTER))
    if strategy.asks_drafter:
        return "no drafter was ready"
    return "no replica with heads was ready" if strategy.needs_heads else ""


def _words(who_is: str, costs: RoundCosts | None, alpha: float) -> str:
    if costs is None or not costs.decoding_s:
        return "the price of a draft token is not known yet"
    if costs.best_depth(alpha, MAX_LOOKAHEAD, PAYS):
        return ""
    times = costs.round_s(1) / costs.decoding_s
    return (
        f"no draft was expected to pay: {who_is} right about {100 * alpha:.0f} % of the time, "
        f"and a round with a draft token takes {times:.1f} times as long as one without"
    )
