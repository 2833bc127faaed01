"""The tokens per second that each strategy is expected to yield: closed forms.

All are renewals: a round takes some time, of this answer and of those that it delays
(``RoundCosts``), yields some tokens, and the process starts afresh. ``alpha`` is the rate at which a
token of the drafter is accepted, ``beta`` that for a level of the heads' trees, and ``gamma`` that
at which another token which the drafter named is right where its first is not. Trials are taken to
be independent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from specmesh.decoding.predict.closed_forms import expected_tokens, min_lookahead
from specmesh.decoding.predict.round_costs import RoundCosts
from specmesh.orchestrator.strategies.chains.reach import IN_VAIN

_DEEPEST: Final = 8
"""Depth beyond which drafts seldom get: they grow only as they are accepted."""
_SURE: Final = 0.995
"""The highest rate that is believed."""


@dataclass(frozen=True, slots=True)
class DrafterRates:
    """The strategies that only need a drafter."""

    costs: RoundCosts
    alpha: float
    gamma: float
    levels: float
    num_verifiers: int

    @property
    def speculative(self) -> float:
        """A chain is drafted, then verified: Theorem 3.8 of Leviathan et al. 2023."""
        return self._draft_then_verify(self.costs, self.alpha)

    @property
    def tree(self) -> float:
        """The same with two nodes a level, which both have to be worth their time."""
        costs = self.costs
        wide = replace(costs, token_s=2 * costs.token_s)
        return self._draft_then_verify(wide, self.levels)

    def _draft_then_verify(self, costs: RoundCosts, alpha: float) -> float:
        depth = costs.best_depth(alpha, _DEEPEST)
        return expected_tokens(alpha, depth) / self._round_s(costs, depth)

    @staticmethod
    def _round_s(costs: RoundCosts, depth: int) -> float:
        """Return the time of a round; even a quick draft is usually late for the next forward of a
        replica that answers share."""
        late_s = max(costs.period_s - costs.wait_s(depth), 0.0) if depth else 0.0
        return costs.round_s(depth) + late_s

    @property
    def exhaustive(self) -> float:
        """The next draft starts from every likely outcome during a verification (Duan et al. 2024);
        without the right one, it is drafted afterwards."""
        costs, alpha, num = self.costs, self.alpha, self.meanwhile
        fresh = costs.best_depth(alpha, _DEEPEST)
        # A forward of the drafter has a row for each outcome.
        num = min(_DEEPEST*2, int(num / (1 + (num + 1) * costs.token_s / costs.alone_s)))
        hit, hit_again = (
            alpha ** (length + 1) * (1 - self.gamma) + self.gamma for length in (fresh, num)
        )
        if not fresh:
            hit = alpha
        again = hit / (1 - hit_again + hit) if num else 0.0
        tokens = again * expected_tokens(alpha, num) + (1 - again) * expected_tokens(alpha, fresh)
        seconds = again * (costs.alone_s + num * costs.token_s)
        return 0.9*tokens / (seconds + (1 - again) * self._round_s(costs, fresh))

    @property
    def meanwhile(self) -> int:
        """The number of tokens drafted during a verification that are worth verifying."""
        costs = self.costs
        least = max(costs.token_s / costs.alone_s, IN_VAIN)
        if least >= 1 or self.alpha <= 0:
            return 0
        worth = math.log(least) / math.log(min(self.alpha, _SURE))
        free = costs.alone_s / costs.level_s if costs.level_s else math.inf
        return int(min(worth, free))

    @property
    def dsi(self) -> float:
        """A rejection costs its verification, and drafting goes on meanwhile (Timor et al. 2025).

        The first verification after a rejection has no draft tokens. Each later one leaves with all
        that was drafted since the previous one, once it is enough and a replica is free.
        """
        costs, alpha = self.costs, min(self.alpha, _SURE)
        level_s = max(costs.level_s, 1e-6)
        half = math.log(0.5) / math.log(alpha) if 0 < alpha < 1 else 1.0
        enough = max(1.0, float(min_lookahead(costs.alone_s, level_s, self.num_verifiers)))
        if self.num_verifiers > 1:
            enough = max(1.0, min(enough, half))
        shared = costs.token_s if costs.period_s else 0.0
        free_s = [0.0] * self.num_verifiers
        free_s[0] = costs.alone_s
        reach, left, sent = 1 - alpha, alpha, 0
        seconds, num_rows = reach * costs.alone_s, 0.0
        limit = 2 * self.num_verifiers * max(enough, min_lookahead(costs.alone_s, level_s, self.num_verifiers))
        least = max(costs.token_s / costs.alone_s, IN_VAIN)
        if alpha <= 1.3 * least or costs.level_s + costs.token_s >= costs.alone_s:
            return 1 / costs.alone_s
        limit = min(limit, math.log(least) / math.log(alpha)) if 0 < least < 1 else 0
        while left > 0.02:
            begins_s = max(min(free_s), (sent + enough) * level_s)
            drafted = max(sent + 1, min(int(begins_s / level_s), sent + max(1, int(limit))))
            ends_s = begins_s + costs.alone_s + (drafted - sent) * costs.token_s
            free_s[free_s.index(min(free_s))] = ends_s
            found = left * (1 - alpha ** (drafted - sent))
            num_rows += left * (drafted - sent + 1)
            seconds += found * ends_s
            left, sent = left - found, drafted
        seconds += left * ends_s if left < alpha else 0.0
        return 1 / (1 - alpha) / (seconds + shared * num_rows)


@dataclass(frozen=True, slots=True)
class HeadsRates:
    """The strategies that use the target's heads."""

    costs: RoundCosts
    beta: float
    limit: int

    @property
    def depth(self) -> int:
        """The best depth of trees."""
        return self.costs.best_depth(self.beta, min(self.limit, _DEEPEST))

    @property
    def heads(self) -> float:
        """As ``speculative``, but that no draft waits."""
        depth = self.depth
        return expected_tokens(self.beta, depth) / self.round_s(depth)

    def round_s(self, depth: int) -> float:
        """Return the time of a round with trees of that depth."""
        return self.costs.alone_s + depth * (self.costs.level_s + self.costs.token_s)

    def with_drafter(self, drafter: DrafterRates) -> float:
        """Return the rate if the drafter's chain is verified too. It stands after a round if it is
        right about all that the round has committed."""
        alpha, beta, depth = drafter.alpha, self.beta, self.depth
        num = drafter.meanwhile
        alone = expected_tokens(beta, depth)
        if not num:
            return alone / self.round_s(depth)
        both = 1.0 + math.fsum(
            (alpha**n if n <= num else 0.0)
            + (beta**n if n <= depth else 0.0)
            - ((alpha * beta) ** n if n <= min(num, depth) else 0.0)
            for n in range(1, max(num, depth) + 1)
        )
        begins = math.fsum(
            beta**n * ((1 - beta) if n < depth else 1.0) * alpha ** (n + 1)
            for n in range(depth + 1)
        )
        goes_on = alpha ** (num + 1)
        stands = begins / (1 - goes_on + begins)
        tokens = stands * both + (1 - stands) * alone
        seconds = self.round_s(depth) + stands * num * drafter.costs.token_s
        return tokens / seconds
