"""The tokens per second that each strategy is expected to yield: closed forms.

All are renewals: a round takes some time, of this answer and of those that it delays
(``RoundCosts``), yields some tokens, and the process starts afresh. Draft tokens are taken to be
accepted independently. The forms leave out hops, and that the drafts of a new answer are short at
first. That makes all of them too high by about a tenth, which hardly changes their order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, NamedTuple

from specmesh.decoding.predict.closed_forms import expected_tokens
from specmesh.decoding.predict.round_costs import SURE, RoundCosts
from specmesh.orchestrator.strategies.chains.dsi_rate import IN_VAIN, dsi_rate
from specmesh.orchestrator.strategies.chains.reach import best_heads_depth

_DEEPEST: Final = 8
"""Depth beyond which drafts that are verified as a whole seldom get: they grow only as they are
accepted."""
_BRANCHED: Final = 0.8
"""The share of the expected rate that drafts from many outcomes have reached in simulations."""
_WIDE: Final = 0.9
"""The same for trees with two nodes a level, of which deep levels have fewer."""


@dataclass(frozen=True, slots=True)
class DrafterRates:
    """The strategies that only need a drafter.

    A token of the drafter is right at the rate ``alpha``, a level of its trees at ``levels``, and
    one of the other tokens that it names, where the first is wrong, at ``others``.
    """

    costs: RoundCosts
    num_verifiers: int
    alpha: float
    levels: float
    others: float

    @property
    def speculative(self) -> float:
        """A chain is drafted, then verified: Theorem 3.8 of Leviathan et al. 2023."""
        return self._draft_then_verify(self.costs, self.alpha)

    @property
    def tree(self) -> float:
        """The same with two nodes a level, or one where that is better."""
        two = self._draft_then_verify(self.costs.of_width(2), self.levels)
        return max(_WIDE * two, self.speculative)

    @property
    def exhaustive(self) -> float:
        """The next draft starts from every likely outcome during a verification (Duan et al. 2024);
        where none is right, it has to be drafted after it."""
        costs, alpha, num = self.costs, self.alpha, self.num_meanwhile
        fresh = costs.best_depth(alpha, _DEEPEST)
        # A forward of the drafter has a row for each outcome.
        num = min(2 * _DEEPEST, int(num / (1 + (num + 1) * costs.token_s / costs.alone_s)))
        hit, hit_again = (
            1 - (1 - alpha ** (length + 1)) * (1 - self.others * bool(length))
            for length in (fresh, num)
        )
        again = hit / (1 - hit_again + hit) if num else 0.0
        tokens = again * expected_tokens(alpha, num) + (1 - again) * expected_tokens(alpha, fresh)
        again_s = costs.verification_s(num)
        return _BRANCHED * tokens / (again * again_s + (1 - again) * _round_s(costs, fresh))

    @property
    def dsi(self) -> float:
        """Nothing waits for a draft, and several replicas verify (Timor et al. 2025). A single one
        that is not shared waits for drafts where that is better."""
        at_once = dsi_rate(self.costs, self.num_verifiers, self.alpha)
        if self.num_verifiers > 1 or self.costs.period_s:
            return at_once
        return max(self.speculative, at_once)

    @property
    def num_meanwhile(self) -> int:
        """The number of tokens drafted during a verification that are worth verifying."""
        costs = self.costs
        least = max(costs.token_s / costs.alone_s, IN_VAIN)
        if least >= 1 or self.alpha <= 0:
            return 0
        worth = math.log(least) / math.log(min(self.alpha, SURE))
        time_s = max(0.0, costs.alone_s - costs.hop_s - costs.queue_s)
        return int(min(worth, time_s / costs.level_s if costs.level_s else worth))

    @staticmethod
    def _draft_then_verify(costs: RoundCosts, alpha: float) -> float:
        depth = costs.best_depth(alpha, _DEEPEST)
        return expected_tokens(alpha, depth) / _round_s(costs, depth)


def _round_s(costs: RoundCosts, depth: int) -> float:
    """Return the time of a draft and its verification. Even a quick draft is usually late for the
    next forward of a replica that answers share."""
    return costs.round_s(depth)


@dataclass(frozen=True, slots=True)
class HeadsRates:
    """The strategies that use the target's heads, which draft trees of up to ``limit`` levels.

    The heads' first choice is right at the rate ``first``, a level of their trees at ``levels``.
    """

    costs: RoundCosts
    first: float
    levels: float
    limit: int

    @property
    def heads(self) -> float:
        """The same as ``DrafterRates.tree``, but drafting holds the replica."""
        return self._best.tokens_per_s

    def with_drafter(self, drafter: DrafterRates) -> float:
        """Return the rate if the drafter's chain is verified too. The chain stands after a round if
        it is right about all that the round has committed."""
        best = self._best
        alpha, beta, depth, num = drafter.alpha, best.beta, best.depth, drafter.num_meanwhile
        if not num:
            return self.heads
        either = 1.0 + math.fsum(
            1 - (1 - alpha**n * (n <= num)) * (1 - beta**n * (n <= depth))
            for n in range(1, max(num, depth) + 1)
        )
        begins = math.fsum(
            beta**n * (1 - beta if n < depth else 1.0) * alpha ** (n + 1) for n in range(depth + 1)
        )
        stands = begins / (1 - min(alpha, SURE) ** (num + 1) + begins)
        tokens = stands * either + (1 - stands) * expected_tokens(beta, depth)
        return tokens / (best.round_s + stands * num * drafter.costs.token_s)

    def dsi(self, drafter: DrafterRates, without: float) -> float:
        """Return the rate of DSI, which is ``without`` heads the given one, if they draft with each
        verdict: they add what they get right and the drafter does not, between two rejections
        (``best_heads_depth``). No heads draft for a single answer of a shared replica, and a single
        replica has no other to go on with."""
        costs, alpha, beta = self.costs, min(drafter.alpha, SURE), self.first
        has_others = drafter.num_verifiers > 1 and not drafter.costs.period_s
        if not has_others or without * costs.decoding_s <= 1:
            return without
        depth = best_heads_depth(
            *(beta, alpha),
            level_s=costs.level_s + costs.token_s,
            token_s=(1 - alpha) * costs.alone_s + drafter.costs.level_s,
            limit=self.limit,
        )
        more = math.fsum(beta**n * (1 - alpha**n) for n in range(1, depth + 1))
        tokens = 1 / (1 - alpha)
        return (tokens + more) / (tokens / without + depth * costs.level_s)

    @property
    def _best(self) -> _Tree:
        """The best tree with one node a level, or with two."""
        trees = (self._tree(1, self.first), self._tree(2, self.levels))
        return max(trees, key=lambda tree: tree.tokens_per_s)

    def _tree(self, width: int, beta: float) -> _Tree:
        costs = self.costs.of_width(width)
        depth = costs.best_depth(beta, min(self.limit, _DEEPEST))
        return _Tree(beta, depth, costs.round_s(depth) / (_WIDE if width > 1 else 1.0))


class _Tree(NamedTuple):
    """A tree of ``depth`` levels, each right at the rate ``beta``, and the time of its round."""

    beta: float
    depth: int
    round_s: float

    @property
    def tokens_per_s(self) -> float:
        return expected_tokens(self.beta, self.depth) / self.round_s
