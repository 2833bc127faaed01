"""Token trees: draft a tree, verify it in one call, start over where its accepted part ended.

A tree holds several tokens for a position: if the target takes the drafter's second choice, the
path continues there. Measured latencies and acceptance decide how much a token must be worth to be
in the tree, and when drafting on does not pay (``decoding/trees/plan.py``); the drafter grows the
tree accordingly (``decoding/trees/growth.py``). ``Goal.width`` is the most tokens of a tree,
``Goal.lookahead`` its depth. Where second choices do not pay, the tree is a chain, and where
drafting does not pay, the target works alone. Alternatively, a request can have the drafter fill
the shape that was the best of a width on calibration text (``decoding/trees/search.py``).

Greedy and coupled mode: the target has one token for each position, and a tree merely has more
chances to guess it. In coupled mode the n-th child of a node is the drafter's n-th best by
log q + noise, with the same noise with which the target chooses by log p + noise. Children are
therefore not independent draws: the second is what the drafter would have said without the first,
and it is right where the two models differ just enough to swap the two.

Rejection mode: children are drawn without replacement. The number of a node's children follows from
what they are drawn from and from tokens at earlier positions, a drawn token is always verified, and
the size of the tree follows from earlier positions alone. This keeps the rule in ``base.py``. A
fixed shape does not depend on any token.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from specmesh.decoding.predict.acceptance_rate import DRAFTER, TREE_LEVELS
from specmesh.decoding.predict.round_costs import PAYS
from specmesh.decoding.trees.plan import AdaptiveTree, TreePlan
from specmesh.decoding.trees.shape import TreeShape
from specmesh.orchestrator.strategies.base import Goal
from specmesh.orchestrator.strategies.chain_ahead import trials_of
from specmesh.orchestrator.strategies.commands import Draft, TaskId
from specmesh.orchestrator.strategies.events import Verified
from specmesh.orchestrator.strategies.kit.draft_then_verify import DraftThenVerify
from specmesh.orchestrator.strategies.kit.growing_tree import GrowingTree
from specmesh.orchestrator.strategies.options import CALIBRATED

NUM_CHOICES: Final = 16
"""Limit of the tokens that a drafter reports; a further child counts as one it did not expect."""


class Tree(DraftThenVerify):
    """Drafts trees whose tokens are worth their time."""

    options = frozenset({"lookahead", "width", "shape"})

    def __init__(self, goal: Goal) -> None:
        super().__init__(goal)
        levels = goal.acceptance.rate(TREE_LEVELS)
        self._adaptive = AdaptiveTree(goal.lookahead, goal.width, levels, PAYS)
        self._first_choices = goal.acceptance.rate(DRAFTER)
        """The rate at which the drafter's first choices are right; only others read it."""
        self._lookahead = goal.lookahead
        wanted = goal.shape == CALIBRATED and goal.width is not None
        self._calibrated = goal.calibrated_trees[: goal.width] if wanted else ()
        self._plan: TreePlan | None = None

    def _draft(self, task: TaskId, room: int) -> Draft | None:
        if self._calibrated:
            return self._fixed_draft(task, self._calibrated[:room][-1])
        plan = self._plan = self._adaptive.plan(self._capacity.drafter_costs)
        if plan is None:
            return None
        depth = min(plan.depth, room)
        growth, num_choices = None, 1
        if plan.growth is not None:
            # Replicas only have KV cache for the longest possible answer, and branches use it too.
            growth = replace(plan.growth, max_nodes=min(plan.growth.max_nodes, room))
            num_choices = min(NUM_CHOICES, growth.max_nodes)
        return Draft(
            *(task, (), depth),
            levels_per_message=depth,
            num_choices=num_choices,
            stop=plan.stop,
            growth=growth,
        )

    def _fixed_draft(self, task: TaskId, shape: TreeShape) -> Draft:
        depth = min(shape.depth, self._lookahead or shape.depth)
        return Draft(task, (), depth, levels_per_message=depth, shape=shape)

    def _learn(self, growth: GrowingTree, verified: Verified) -> None:
        verdict = verified.verdict
        said = (*growth.whole.tree.tokens_on(verdict.accepted_nodes), verdict.next_token)
        self._first_choices.learn(trials_of(growth.chain_below(0).tokens, said))
        outcome = growth.whole.outcome(verdict.accepted_nodes, verdict.next_token, verified.tried)
        self._adaptive.observe(outcome, self._plan)
