"""How far DSI drafts a chain, and how many of its tokens a verification covers."""

from __future__ import annotations

from itertools import accumulate

from specmesh.decoding.predict.closed_forms import min_lookahead
from specmesh.orchestrator.strategies.base import Capacity
from specmesh.orchestrator.strategies.chains import Chain

DEFAULT_LOOKAHEAD = 4
"""Until latencies are measured."""
IN_VAIN = 0.03
"""Tokens that are accepted with a lower probability than this are not drafted: other requests
need the drafter, and an answer that has it for itself loses at most 2 % of its time. With eight
requests at once on two replicas whose forward pass takes as long as 13 of the drafter's
(`specmesh simulate run`, acceptance 0.8), they end in two thirds of the time that they would take
without this bound."""


class Reach:
    """Follows the latencies and replicas in ``capacity``, but for a lookahead that is given."""

    def __init__(self, lookahead: int | None) -> None:
        self.capacity = Capacity()
        self._given = lookahead

    @property
    def lookahead(self) -> int:
        """As given, or the smallest with which no verification waits for a replica."""
        return self._given or self._least_lookahead

    def beyond_committed(self, chain: Chain) -> float:
        """How many tokens beyond the committed ones a chain may have.

        By Equation 1 the replicas hold SP * lookahead tokens while a verification lasts, and as
        many again are drafted meanwhile. More would only wait, when there is a backlog at the
        replicas, and keep the drafter from other requests. Nor is a token of use that takes the
        replicas more time than it is likely to save.
        """
        in_use = 2 * self._parallelism * max(self.lookahead, self._least_lookahead)
        if self._given is not None:
            return in_use
        return min(in_use, chain.acceptance.num_worth(self._least_chance))

    def is_worth_drafting(self, chain: Chain) -> bool:
        """Whether a draft token can be there before the target's own, and is worth verifying."""
        cost = self.capacity.draft_cost
        if self._given is not None or cost is None:
            return True
        return cost < 1 and chain.acceptance.alpha > self._least_chance

    def heads_depth(self, heads: Chain, chain: Chain | None) -> int:
        """How many levels heads draft with each verdict, for the case that it rejects a token of
        ``chain``, the first drafter's; 0 where that doesn't pay."""
        capacity = self.capacity
        if not capacity.target_s or capacity.heads_s is None:
            return min(DEFAULT_LOOKAHEAD, capacity.heads_depth)
        alpha, drafter_s = 0.0, 0.0
        if chain and capacity.drafter_s is not None and self.is_worth_drafting(chain):
            alpha, drafter_s = chain.acceptance.alpha, capacity.drafter_s
        depth = best_heads_depth(
            *(heads.acceptance.alpha, alpha),
            level_s=capacity.heads_s + capacity.target_token_s,
            token_s=(1 - alpha) * capacity.target_s + drafter_s,
            limit=capacity.heads_depth,
        )
        if depth or not capacity.heads_depth:
            return depth
        # Nothing is won back: such a token seldom saves a verification.
        return int(heads.exploration.tries(capacity.heads_s / capacity.target_s))

    def explores(self, chain: Chain) -> bool:
        """Whether to draft a token all the same, to see if that has changed."""
        cost = self.capacity.draft_cost
        return cost is not None and chain.exploration.tries(cost)

    @property
    def _least_chance(self) -> float:
        """The probability of being accepted that a token must have to be drafted."""
        return max(self.capacity.token_cost, IN_VAIN)

    @property
    def _least_lookahead(self) -> int:
        """Equation 1, once latencies are known."""
        target_s, drafter_s = self.capacity.target_s, self.capacity.drafter_s
        if target_s is None or drafter_s is None:
            return DEFAULT_LOOKAHEAD
        return min_lookahead(target_s, drafter_s, self._parallelism)

    @property
    def _parallelism(self) -> int:
        return max(1, self.capacity.num_verifiers)


def best_heads_depth(
    beta: float, alpha: float, *, level_s: float, token_s: float, limit: int
) -> int:
    """The depth from 0 to ``limit`` that saves most time if heads are right with probability
    ``beta`` at each level and the drafter with ``alpha``; a level takes ``level_s`` seconds, a
    token of the answer ``token_s`` without heads.

    From one rejection to the next DSI takes a verification, besides drafting, and yields the tokens
    that the drafter gets right and one more: hence ``token_s`` = (1 - alpha) target_s + drafter_s.
    The verification that leaves at once tells those that heads get right and one more. So the n-th
    level yields a token if heads are right that far and the drafter isn't: beta^n (1 - alpha^n).
    """
    saved = (token_s * beta**n * (1 - alpha**n) - level_s for n in range(1, limit + 1))
    totals = [0.0, *accumulate(saved)]
    return totals.index(max(totals))
