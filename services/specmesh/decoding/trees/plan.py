"""The plan of a tree: nodes and levels that are worth their time.

The argument is that of ``decoding/predict/lookahead.py``: at R tokens per second, anything that
takes a time t is worth it if it yields at least R * t tokens. A node yields its value, the
probability that it is accepted along with all nodes before it, and takes the time that a token adds
to a verification and to drafting a level: nodes worth less than R * t are left out. A level yields
the sum of its nodes' values. Let S be that sum for the previous level, and a the probability that a
child of an accepted node is accepted. Then another level yields about S * a, and takes at least the
time t of a drafter's step and a node: stop as soon as S < R * t / a, since S only falls.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from specmesh.decoding.predict.acceptance_rate import PRIOR_ALPHA, AcceptanceRate
from specmesh.decoding.predict.closed_forms import expected_tokens
from specmesh.decoding.predict.lookahead import (
    DEFAULT_LOOKAHEAD,
    MAX_LOOKAHEAD,
    DraftStop,
    trial_depth,
)
from specmesh.decoding.predict.platt import OnlinePlatt
from specmesh.decoding.predict.round_costs import RoundCosts
from specmesh.decoding.trees.growth import TreeGrowth

DEFAULT_WIDTH: Final = 16
"""The default number of nodes; more hardly make the accepted path longer (Ghidorah, Table I)."""
MAX_WIDTH: Final = 64
_PRIOR_ROUNDS: Final = 4.0
"""The number of rounds of chains of ``DEFAULT_LOOKAHEAD`` at ``PRIOR_ALPHA`` assumed at first."""
_DECAY: Final = 0.98
"""The factor on a round's weight for each later round."""
_DEARER: Final = 1.25
_CHEAPER: Final = 0.8
"""The factors on the shadow price after a tree that filled its width, and after one that didn't:
about half of the trees then have room to spare."""
_CHEAPEST: Final = 1e-3


@dataclass(frozen=True, slots=True)
class Siblings:
    """The children of an accepted node: the drafter's ``confidences`` in them (see
    ``decoding/trees/siblings.py``), and the index of the ``accepted`` one, None if all were
    rejected."""

    confidences: tuple[float, ...]
    accepted: int | None


@dataclass(frozen=True, slots=True)
class TreeOutcome:
    """The outcome of verifying a tree: its size, and ``siblings`` for every accepted node with
    children, from the root (included) downwards."""

    num_nodes: int
    num_levels: int
    siblings: tuple[Siblings, ...]

    @property
    def num_accepted(self) -> int:
        """The length of the accepted path."""
        return sum(each.accepted is not None for each in self.siblings)


@dataclass(frozen=True, slots=True)
class TreePlan:
    """The draft of one round: at most ``depth`` levels, ended early by ``stop``.

    ``price`` is the value that a node needs to be worth its time. A ``trial`` tests whether
    drafting pays again.
    """

    depth: int
    growth: TreeGrowth | None
    """None for a chain."""
    stop: DraftStop
    price: float = 0.0
    trial: bool = False


class AdaptiveTree:
    """A controller that learns from round to round which tree to draft; it affects only speed,
    never a token.

    ``lookahead`` and ``width`` are those of the request. With a lookahead every tree is drafted to
    that depth; with a width tokens count as free, so trees fill it. With None the controller
    decides.

    If many nodes are worth their time, the width limits the tree. A level would take all the room,
    though later levels may have better nodes, so the width has a price of its own (a shadow price):
    it rises with each full tree, and falls with each other tree.
    """

    def __init__(
        self,
        lookahead: int | None = None,
        width: int | None = None,
        acceptance: AcceptanceRate | None = None,
        least_gain: float = 1.0,
    ) -> None:
        self._lookahead = lookahead
        self._fills = width is not None
        self._width = width or DEFAULT_WIDTH
        self._least_gain = least_gain
        self._shadow_price = 1 / self._width
        self._limit = DEFAULT_LOOKAHEAD
        """The depth limit, as in ``AdaptiveLookahead``: it doubles when a path of that length was
        accepted."""
        self._calibration = OnlinePlatt()
        self._acceptance = acceptance or AcceptanceRate()
        """The acceptance rate of levels: the rate at which an accepted node has an accepted
        child."""
        self._measures = False
        """True if it drafts until costs are known."""
        self._num_rounds = _PRIOR_ROUNDS
        self._num_levels = self._num_nodes = _PRIOR_ROUNDS * DEFAULT_LOOKAHEAD
        self._num_tokens = _PRIOR_ROUNDS * expected_tokens(PRIOR_ALPHA, DEFAULT_LOOKAHEAD)

    def plan(self, costs: RoundCosts | None) -> TreePlan | None:
        """Plan the next round's tree; None if drafting doesn't pay. At most a single node if
        ``costs`` are None, that is not known yet (see ``AdaptiveLookahead``), unless a request asks
        for more."""
        asked = self._fills or self._lookahead is not None
        if costs is None and not asked:
            self._measures = self._measures or self._acceptance.exploration.measures()
            if not self._measures:
                return None
            return TreePlan(1, TreeGrowth(1, 0.0), DraftStop(0.0, self._calibration.latest))
        if costs is None or not costs.alone_s:
            return self._tree(self._limit, below=0.0, price=0.0)
        if self._fills:
            costs = replace(costs, token_s=0.0, sibling_s=0.0)
        acceptance = self._acceptance.common if costs.holds_others else self._acceptance
        # Levels with several nodes are right more often, and all of these are verified.
        levels = costs.of_width(acceptance.width)
        depth = levels.best_depth(acceptance.alpha, self._limit, self._least_gain)
        if not self._lookahead and not depth:
            depth = trial_depth(costs)
            if not self._acceptance.exploration.tries(costs.explored_s(depth) / costs.decoding_s):
                return None
            stop = DraftStop(0.0, self._calibration.latest)
            return TreePlan(depth, None, stop, trial=True)
        rate = self._tokens_per_s(costs)
        below = min(1.0, rate * costs.marginal_s(depth) / self._acceptance.alpha)
        # Answers whose heads draft together all wait for the deepest tree.
        deepest = depth if costs.holds_others else costs.deepest(depth, self._limit)
        price = min(1.0, rate * (costs.token_s + costs.sibling_s))
        return self._tree(deepest, below, price, costs.most_tokens)

    def observe(self, outcome: TreeOutcome, plan: TreePlan | None = None) -> None:
        """Learn from a round that was verified; ``plan`` is that of its draft, None if there was
        none."""
        price, trial = (plan.price, plan.trial) if plan is not None else (0.0, False)
        for each in outcome.siblings:
            accepted = [rank == each.accepted for rank in range(len(each.confidences))]
            self._calibration.learn(each.confidences, accepted)
        width = outcome.num_nodes / max(1, outcome.num_levels)
        self._acceptance.learn((each.accepted is not None for each in outcome.siblings), width)
        num_accepted = outcome.num_accepted
        if trial:
            self._acceptance.exploration.won(num_accepted)
        self._num_rounds = self._num_rounds * _DECAY + 1
        self._num_levels = self._num_levels * _DECAY + outcome.num_levels
        self._num_nodes = self._num_nodes * _DECAY + outcome.num_nodes
        self._num_tokens = self._num_tokens * _DECAY + num_accepted + 1
        if num_accepted >= self._limit:
            self._limit = min(2 * self._limit, MAX_LOOKAHEAD)
        if outcome.num_nodes >= self._width:
            self._shadow_price = min(1.0, self._shadow_price * _DEARER)
        elif self._shadow_price >= price and not trial:
            self._shadow_price = max(_CHEAPEST, self._shadow_price * _CHEAPER)

    def _tree(
        self, depth: int, below: float, price: float, most_tokens: float = math.inf
    ) -> TreePlan:
        asked = self._fills or self._lookahead is not None
        width = self._width if asked else int(min(self._width, most_tokens))
        growth = TreeGrowth(width, max(price, self._shadow_price))
        if self._lookahead:
            below = 0.0
        stop = DraftStop(below, self._calibration.latest)
        return TreePlan(self._lookahead or depth, growth, stop, price)

    def _tokens_per_s(self, costs: RoundCosts) -> float:
        """Return the rate of the rounds so far, or that of the target alone if that is higher."""
        seconds = self._num_rounds * costs.target_s + self._num_levels * costs.level_s
        seconds += (self._num_nodes - self._num_levels) * costs.sibling_s
        return max(self._num_tokens / seconds if seconds else 0.0, 1 / costs.decoding_s)
