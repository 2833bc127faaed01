"""The tokens per second that each strategy is expected to yield: closed forms.

All are renewals: a round takes some time, of this answer and of those that it delays
(``RoundCosts``), yields some tokens, and the process starts afresh. ``alpha`` is the rate at which a
token of the drafter is accepted, ``beta`` that for a level of the heads' trees; trials are taken to
be independent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from specmesh.decoding.predict.closed_forms import expected_tokens, min_lookahead
from specmesh.decoding.predict.lookahead import MAX_LOOKAHEAD
from specmesh.decoding.predict.round_costs import RoundCosts
from specmesh.orchestrator.strategies.chains.reach import IN_VAIN


@dataclass(frozen=True, slots=True)
class DrafterRates:
    """The strategies that only need a drafter."""

    costs: RoundCosts
    alpha: float
    num_verifiers: int

    @property
    def speculative(self) -> float:
        """Theorem 3.8 of Leviathan et al. 2023 at the best depth."""
        depth = self.costs.best_depth(self.alpha, MAX_LOOKAHEAD)
        return expected_tokens(self.alpha, depth) / self.costs.round_s(depth)

    @property
    def meanwhile(self) -> int:
        """The number of tokens drafted during a verification that are worth verifying."""
        return num_meanwhile(self.costs, self.alpha)

    @property
    def dsi(self) -> float:
        """A rejection costs a verification; what is right is only drafted (Timor et al. 2025)."""
        costs, alpha = self.costs, self.alpha
        if self.num_verifiers <= 1:
            return max(self._one_verifier, self.speculative)
        lookahead = min_lookahead(costs.alone_s, costs.level_s, self.num_verifiers)
        half = math.log(0.5) / math.log(alpha) if 0 < alpha < 1 else 1.0
        tokens = 1 / (1 - min(alpha, 0.995))
        found = min(lookahead, max(1.0, half))
        num_rows = tokens + min(self.meanwhile, 2 * self.num_verifiers * lookahead)
        seconds = costs.alone_s + (tokens + found) * costs.level_s + num_rows * costs.token_s
        return max(self._one_verifier, tokens / seconds)

    @property
    def _one_verifier(self) -> float:
        """Verifications one after the other, each of what was drafted during the previous one."""
        costs, alpha, num = self.costs, self.alpha, self.meanwhile
        if not num:
            return 1 / costs.alone_s
        stands = alpha ** (num + 1)
        rounds = alpha / (1 - min(stands, 0.999))
        tokens = 1 + rounds * expected_tokens(alpha, num)
        return tokens / (costs.alone_s * (1 + rounds) + rounds * num * costs.token_s)


@dataclass(frozen=True, slots=True)
class HeadsRates:
    """The strategies that use the target's heads."""

    costs: RoundCosts
    beta: float
    limit: int

    @property
    def depth(self) -> int:
        """The best depth of trees."""
        return self.costs.best_depth(self.beta, self.limit)

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


def num_meanwhile(costs: RoundCosts, alpha: float) -> int:
    """Return the number of tokens drafted during a verification that are worth verifying."""
    least = max(costs.token_s / costs.alone_s, IN_VAIN)
    if least >= 1 or alpha <= 0:
        return 0
    worth = math.log(least) / math.log(min(alpha, 0.999))
    free = costs.alone_s / costs.level_s if costs.level_s else math.inf
    return int(min(worth, free, 256))
