"""The policy of ``auto``: the strategy that is expected to be the fastest.

The expected rates follow from the mesh's costs and the acceptance rates of drafts, and are
corrected by the speeds that the strategies turned out to have (``MeasuredSpeeds``). What was hardly
tried is assumed to be about as good as what is known, so that it is tried where that would make it
the best. A strategy has to be clearly better than the current one to replace it. Drafts have to be
expected to pay for an answer to begin with them, and are kept while they are no slower than the
target alone: where both are about as fast, to change often is slower than either. Where no drafts
pay, the target works alone, except for what ``Exploration`` allows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from specmesh.decoding.predict.acceptance_rate import (
    DRAFTER,
    HEADS_CHAIN,
    HEADS_LEVELS,
    OTHER_OUTCOMES,
    PRIOR_ALPHA,
    TREE_LEVELS,
    MeshAcceptance,
)
from specmesh.decoding.predict.round_costs import PAYS
from specmesh.orchestrator.strategies.auto.rates import DrafterRates, HeadsRates
from specmesh.orchestrator.strategies.events import Capacity

ALONE: Final = "autoregressive"
SPECULATIVE: Final = "speculative"
DSI: Final = "dsi"
EXHAUSTIVE: Final = "exhaustive"
HEADS_AND_DRAFTER: Final = "heads-and-drafter"

ENOUGH: Final = 8.0
"""Trials after which a rate counts more than what is assumed of it."""
MEASURED_TOKENS: Final = 32
"""Tokens for which an answer measures a drafter of whose drafts fewer than ``ENOUGH`` have been
verified. If none seems worth trying, more would teach nothing."""
CLEARLY: Final = 1.1
"""The factor by which the rate of another strategy must be higher than that of the current one, and
than that of the target alone if the strategy was slower than expected before."""
SECOND_CHOICES: Final = 0.35
"""The share of the drafter's errors that a tree is assumed to make good."""
QUEUE: Final = 1.5
"""Answers that wait for a replica one after the other from which on they form a queue."""
OTHERS: Final = 0.5
"""The share of its errors after which one of the other tokens that it named is assumed right."""


Forecast: TypeAlias = Callable[[Capacity, MeshAcceptance], Mapping[str, float]]
"""A function that returns what each strategy is expected to yield over what the target alone
does."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A strategy, and the reason for it in words."""

    strategy: str
    reason: str
    lookahead: int | None = None
    """Number of tokens to draft, if the strategy does not decide that itself."""
    tentative: bool = False
    """True if the choice is made again as soon as more is known."""
    expected: float | None = None
    """The speed that is expected of it over that of the target alone, before any correction by
    measured speeds; None if nothing is expected."""


def choose(
    capacity: Capacity,
    acceptance: MeshAcceptance,
    current: str | None,
    *,
    num_tokens: int = 0,
    forecast: Forecast | None = None,
) -> Choice:
    """Return the best strategy for the rest of an answer whose drafts have this ``acceptance``.

    The answer has ``num_tokens`` so far, and ``current`` as its strategy. ``forecast`` may replace
    ``expected_rates``. This may spend some of the budget for exploration.
    """
    if not (capacity.drafters or capacity.heads_depth):
        return Choice(ALONE, "there is neither a drafter nor are there heads")
    is_untried = bool(capacity.drafters) and acceptance.num_trials(DRAFTER) < ENOUGH
    if _is_unknown(capacity) or (is_untried and num_tokens < MEASURED_TOKENS):
        measures = HEADS_AND_DRAFTER if capacity.heads_depth else SPECULATIVE
        if capacity.drafter_costs and capacity.num_verifiers > 1 and not capacity.heads_depth:
            measures = DSI
        return Choice(measures, "the mesh has yet to be measured", tentative=True)
    if current == ALONE and not capacity.knows_price:
        return Choice(SPECULATIVE, "a token's price is unknown", lookahead=1, tentative=True)
    expected = (forecast or expected_rates)(capacity, acceptance)
    rates = {name: rate * acceptance.speeds.correction(name) for name, rate in expected.items()}
    best = max(rates, key=rates.__getitem__)
    if current is not None and rates[best] <= CLEARLY * rates.get(current, 0.0):
        best = current
    if rates[best] < _least_gain(best, current, acceptance):
        return _alone(capacity, acceptance)
    reason = _reason(best, rates, measured=acceptance.speeds.has_measured(best))
    return Choice(best, reason, expected=expected[best])


def expected_rates(capacity: Capacity, acceptance: MeshAcceptance) -> Mapping[str, float]:
    """Return what each strategy is expected to yield over what the target alone does, for all that
    the mesh has. All costs must be known."""
    rates: dict[str, float] = {}
    alpha, drafter = PRIOR_ALPHA, None
    if capacity.drafters and (costs := capacity.drafter_costs):
        alpha = acceptance.alpha(DRAFTER)
        levels = _rate(acceptance, TREE_LEVELS, alpha + (1 - alpha) * SECOND_CHOICES)
        others = _rate(acceptance, OTHER_OUTCOMES, OTHERS)
        # Drafts of a crowd begin together, while the drafter works on the first of them.
        queue_s = costs.level_s * (1 - 1 / capacity.num_sharing)
        costs = replace(costs, queue_s=max(costs.queue_s, queue_s))
        drafter = DrafterRates(costs, max(1, capacity.num_verifiers), alpha, levels, others)
        rates = {
            SPECULATIVE: drafter.speculative,
            "tree": drafter.tree,
            EXHAUSTIVE: drafter.exhaustive,
        }
        # It cancels verifications, and in a queue the replica has none to do instead.
        if capacity.num_waiting < QUEUE:
            rates[DSI] = drafter.dsi
    if capacity.heads_depth and (costs := capacity.heads_costs):
        beta = _rate(acceptance, HEADS_CHAIN, max(PRIOR_ALPHA, alpha))
        levels = _rate(acceptance, HEADS_LEVELS, beta + (1 - beta) * SECOND_CHOICES)
        heads = HeadsRates(costs, beta, levels, capacity.heads_depth)
        rates["heads"] = heads.heads
        if drafter is not None:
            rates[HEADS_AND_DRAFTER] = heads.with_drafter(drafter)
            if DSI in rates:
                rates[DSI] = heads.dsi(drafter, rates[DSI])
    return {name: rate * (capacity.decoding_s or 0.0) for name, rate in rates.items()}


def _is_unknown(capacity: Capacity) -> bool:
    """Return whether the price of something that the mesh has is unknown."""
    if not capacity.alone_s or (capacity.heads_depth and capacity.heads_costs is None):
        return True
    return bool(capacity.drafters) and capacity.drafter_costs is None


def _least_gain(best: str, current: str | None, acceptance: MeshAcceptance) -> float:
    """Return the factor by which the ``best`` strategy must be faster than the target alone."""
    if best == current:
        return 1.0
    return PAYS if acceptance.speeds.correction(best) >= 1 else CLEARLY


def _rate(acceptance: MeshAcceptance, source: str, assumed: float) -> float:
    """Return the rate of ``source``, near the ``assumed`` one until it has been tried often."""
    num = acceptance.num_trials(source)
    return (acceptance.alpha(source) * num + assumed * ENOUGH) / (num + ENOUGH)


def _alone(capacity: Capacity, acceptance: MeshAcceptance) -> Choice:
    """Return the target alone, or now and then a stretch that tries a token per verification."""
    costs = capacity.heads_costs or capacity.drafter_costs
    assert costs is not None
    if acceptance.exploration.tries(costs.explored_s() / costs.decoding_s):
        tries = HEADS_AND_DRAFTER if capacity.heads_depth else SPECULATIVE
        return Choice(tries, "it is time to see whether drafts pay again", lookahead=1)
    return Choice(ALONE, "no draft is expected to pay")


def _reason(best: str, rates: Mapping[str, float], *, measured: bool) -> str:
    others = sorted(((rate, name) for name, rate in rates.items() if name != best), reverse=True)
    beside = f" ({others[0][1]}: {others[0][0]:.1f} times)" if others else ""
    known = "by its measured speed it is expected" if measured else "it is estimated"
    return f"{known} at {rates[best]:.1f} times the target alone{beside}"
