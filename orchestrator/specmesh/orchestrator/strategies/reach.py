"""How far DSI drafts a chain, and how many of its tokens a verification covers."""

from __future__ import annotations

from specmesh.decoding.closed_forms import min_lookahead
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
