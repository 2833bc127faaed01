"""Decides how far DSI drafts a chain and how many of its tokens a verification covers."""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import accumulate

from specmesh.decoding.predict.closed_forms import expected_tokens, min_lookahead
from specmesh.decoding.predict.lookahead import MAX_LOOKAHEAD
from specmesh.decoding.predict.round_costs import PAYS, RoundCosts
from specmesh.orchestrator.strategies.chains.chain import Chain
from specmesh.orchestrator.strategies.chains.dsi_rate import IN_VAIN, dsi_rate
from specmesh.orchestrator.strategies.events import Capacity

DEFAULT_LOOKAHEAD = 4
"""Lookahead until latencies are measured."""
UNLIKELY = 0.1
"""Tokens of a chain that are accepted with a lower probability than this are not drafted: other
answers need the drafter."""
WORTH_WAITING = 1.1
"""The factor by which an answer must be expected to be faster if its verifications wait for drafts:
the estimate leaves out that drafts go on during verifications."""


class Reach:
    """Adapts to the latencies and replicas in ``capacity``, except for a given ``lookahead``."""

    def __init__(self, lookahead: int | None) -> None:
        self.capacity = Capacity()
        self._given = lookahead
        self._measures = False
        """True if the answer drafts until costs are known."""

    def lookahead(self, chain: Chain) -> int:
        """Return the given lookahead, or the smallest with which no verification of ``chain`` waits
        for a replica: that of Equation 1, or less if the chain is so short that its parts leave a
        replica for the verification that starts over. Where answers share replicas, it is so large
        that together they lose the least by their verifications."""
        if self._given is not None:
            return self._given
        least, num_others = self._least_lookahead, self._parallelism - 1
        if num_others:
            least = max(1, min(least, math.ceil(self.beyond_committed(chain) / num_others)))
        costs = self.capacity.drafter_costs
        shared = costs.shared_lookahead(chain.acceptance.common.alpha) if costs else 0
        return max(least, shared)

    def beyond_committed(self, chain: Chain) -> float:
        """Return how many tokens a chain may have beyond the committed ones to be drafted on.

        By Equation 1 the replicas hold SP * lookahead tokens during a verification, and equally
        many are drafted meanwhile. More tokens would only wait when the replicas have a backlog,
        and keep the drafter from other requests. A token that takes the replicas more time than it
        is likely to save is useless too.
        """
        if self._given is None and self.capacity.drafter_costs is None:
            return 0
        in_use = 2 * self._parallelism * max(self._given or 0, self._least_lookahead)
        if self._given is not None:
            return in_use
        return min(in_use, max(0.0, chain.acceptance.num_worth(self._least_chance) - 1))

    def is_worth_drafting(self, chain: Chain) -> bool:
        """Return whether a draft token can arrive before the target's and is worth verifying; False
        while that is unknown. Answers that share forwards decide alike (``AdaptiveLookahead``)."""
        costs = self.capacity.drafter_costs
        if self._given is not None:
            return True
        if costs is None:
            return False
        if not costs.alone_s:
            return True
        alpha = (chain.acceptance.common if costs.period_s else chain.acceptance).alpha
        if _pays_ahead(costs, self._parallelism, alpha):
            return True
        return self._has_own_replica and _pays_to_wait_for(costs, alpha)

    def heads_depth(self, heads: Chain, chain: Chain | None) -> int:
        """Return how many levels heads draft with each verdict, in case it rejects a token of
        ``chain``, the first drafter's; 0 where that does not pay: while the heads of a shared
        replica draft for one answer, the next forward of all others waits."""
        capacity = self.capacity
        if capacity.period_s:
            return 0
        if not capacity.alone_s or capacity.heads_s is None:
            return min(self._given or 1, capacity.heads_depth)
        alpha, drafter_s = 0.0, 0.0
        if chain and capacity.drafter_s is not None and self.is_worth_drafting(chain):
            alpha, drafter_s = chain.acceptance.alpha, capacity.drafter_s
        depth = best_heads_depth(
            *(heads.acceptance.alpha, alpha),
            level_s=capacity.heads_s + capacity.target_token_s,
            token_s=(1 - alpha) * capacity.alone_s + drafter_s,
            limit=capacity.heads_depth,
        )
        if depth or not capacity.heads_depth:
            return depth
        # Exploration tries are not refunded: such a token seldom saves a verification.
        cost = (capacity.heads_s + capacity.target_token_s) / capacity.alone_s
        return int(heads.acceptance.exploration.tries(cost))

    def least_tokens(self, chain: Chain, heads: Chain, position: int) -> int:
        """Return the number of draft tokens from ``position`` on that the current verifier waits
        for, if ``chain`` is being drafted, instead of verifying what ``heads`` have at once. It is
        0 unless there is a single replica, which a verification of a few tokens would occupy for as
        long as one of a whole draft."""
        costs = self.capacity.drafter_costs
        if self._given is not None or costs is None or not costs.alone_s:
            return 0
        if not self._has_own_replica:
            return 0
        alpha = chain.acceptance.alpha
        depth = costs.best_depth(alpha, MAX_LOOKAHEAD)
        held_s = costs.verification_s(depth) + depth * costs.level_s
        if (num_given := heads.end - position) > 0:
            tokens = expected_tokens(heads.acceptance.alpha, num_given)
            at_once = tokens / costs.verification_s(num_given)
        else:  # a token, and if it is the drafter's, all that was drafted meanwhile
            free = costs.alone_s / costs.level_s if costs.level_s else MAX_LOOKAHEAD
            num_meanwhile = int(min(self.beyond_committed(chain), free))
            tokens = 1 + alpha * expected_tokens(alpha, max(0, num_meanwhile - 1))
            at_once = tokens / (costs.alone_s * (1 + alpha))
        pays = expected_tokens(alpha, depth) / held_s > WORTH_WAITING * at_once
        return depth if pays else 0

    def second_choice_pays(self, chance: float) -> bool:
        """Return whether to verify another token beside the drafter's that the target says with
        probability ``chance``: it saves a verification."""
        known = self._given is None and self.capacity.drafter_costs is not None
        return known and chance > max(self.capacity.token_cost, IN_VAIN)

    def explores(self, chain: Chain) -> bool:
        """Return whether to draft a token nevertheless, to measure a mesh that has just started, or
        to see if drafting pays again. Unless the only verification waits for it, it is verified by
        one of its own, which has two rows."""
        cost, exploration = self.capacity.trial_cost, chain.acceptance.exploration
        if cost is None:
            self._measures = self._measures or exploration.measures()
            return self._measures
        if not self._has_own_replica:
            cost += self.capacity.token_cost
        if not exploration.tries(cost):
            return False
        # A replica that answers share has begun its forward before the draft is there. What the
        # token saves of the next one is little, so only news about the drafter is worth a credit.
        chain.trial_credit = 1 - chain.acceptance.alpha if self.capacity.period_s else 1.0
        return True

    @property
    def _least_chance(self) -> float:
        """Acceptance probability that a token must exceed to be drafted."""
        return max(self.capacity.token_cost, UNLIKELY)

    @property
    def _least_lookahead(self) -> int:
        """The minimum of Equation 1, once latencies are known."""
        target_s, drafter_s = self.capacity.target_s, self.capacity.drafter_s
        if target_s is None or drafter_s is None:
            return DEFAULT_LOOKAHEAD
        return min_lookahead(target_s, drafter_s, self._parallelism)

    @property
    def _has_own_replica(self) -> bool:
        """True if one replica verifies, and computes nothing else meanwhile."""
        return self._parallelism == 1 and not self.capacity.period_s

    @property
    def _parallelism(self) -> int:
        return max(1, self.capacity.num_verifiers)


# Asked at each token; while the target decodes on, the answer stays the same.
@lru_cache(maxsize=1024)
def _pays_ahead(costs: RoundCosts, num_verifiers: int, alpha: float) -> bool:
    return dsi_rate(costs, num_verifiers, alpha) * costs.decoding_s > PAYS


@lru_cache(maxsize=1024)
def _pays_to_wait_for(costs: RoundCosts, alpha: float) -> bool:
    return costs.best_depth(alpha, MAX_LOOKAHEAD) > 0


def best_heads_depth(
    beta: float, alpha: float, *, level_s: float, token_s: float, limit: int
) -> int:
    """Return the depth from 0 to ``limit`` that saves most time if heads are right with probability
    ``beta`` at each level and the drafter with ``alpha``; a level takes ``level_s`` seconds, a
    token of the answer ``token_s`` without heads.

    Between two rejections DSI takes a verification, besides drafting, and yields the tokens that
    the drafter gets right plus one: hence ``token_s`` = (1 - alpha) target_s + drafter_s. The
    verification sent right after the rejection yields the tokens that heads get right plus one. So
    the n-th level yields a token if heads are right that far and the drafter is not:
    beta^n (1 - alpha^n).
    """
    saved = (token_s * beta**n * (1 - alpha**n) - level_s for n in range(1, limit + 1))
    totals = [0.0, *accumulate(saved)]
    return totals.index(max(totals))
