"""Speculative decoding: draft a chain of γ tokens, verify it, start over where it ended.

Leviathan et al. 2023, Algorithm 1, with γ = ``Goal.lookahead``; without one, each draft continues
for as long as it pays (see ``decoding/predict/lookahead.py``).

In rejection mode, too, the text has the target's distribution, however sure the drafter is:
whether a position is drafted depends on tokens before it, and a drawn token is always verified.
"""

from __future__ import annotations

from specmesh.decoding.predict.lookahead import AdaptiveLookahead
from specmesh.decoding.predict.predictors import DraftOutcome
from specmesh.orchestrator.strategies.base import Goal
from specmesh.orchestrator.strategies.commands import Draft, TaskId
from specmesh.orchestrator.strategies.events import Verified
from specmesh.orchestrator.strategies.kit.draft_then_verify import DraftThenVerify
from specmesh.orchestrator.strategies.kit.growing_tree import GrowingTree


class Speculative(DraftThenVerify):
    """Drafts a fixed number of tokens, or as many as are worth their time."""

    def __init__(self, goal: Goal) -> None:
        super().__init__(goal)
        self._fixed = goal.lookahead
        self._acceptance = goal.acceptance.rate()
        self._adaptive = AdaptiveLookahead(self._acceptance)

    def _draft(self, task: TaskId, room: int) -> Draft | None:
        if self._fixed:
            depth = min(self._fixed, room)
            return Draft(task, (), depth, levels_per_message=depth)
        plan = self._adaptive.plan(self._capacity.drafter_costs)
        if not plan.depth:
            return None
        depth = min(plan.depth, room)
        # The drafter reports the token it draws first, and so tells how sure it is of it.
        return Draft(task, (), depth, levels_per_message=depth, num_choices=1, stop=plan.stop)

    def _learn(self, growth: GrowingTree, verified: Verified) -> None:
        confidences = growth.chain_below(0).confidences
        outcome = DraftOutcome(len(verified.verdict.accepted_nodes), confidences)
        if self._fixed:
            self._acceptance.learn(outcome.trials)  # by which ``auto`` decides
        else:
            self._adaptive.observe(outcome)
