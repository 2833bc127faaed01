"""Speculative decoding: draft a chain of γ tokens, verify it, start over where it ended.

Leviathan et al. 2023, Algorithm 1, with γ = ``Goal.lookahead``; without one, each draft goes on
for as long as it pays (see ``decoding/lookahead.py``). Drafting and verifying take turns; a
draft that fails costs its round the speculation, not the answer.

In rejection mode too the text has the target's distribution whatever the drafter is sure of:
whether a position is drafted depends on tokens before it, and a token drawn is always verified.
"""

from __future__ import annotations

from collections.abc import Sequence

from specmesh.decoding.acceptance import Verdict
from specmesh.decoding.lookahead import AdaptiveLookahead, DraftStop
from specmesh.decoding.predictors import Outcome
from specmesh.decoding.tree import TokenTree
from specmesh.orchestrator.strategies.base import (
    Capacity,
    Command,
    Draft,
    Drafted,
    Event,
    Failed,
    GiveUp,
    Goal,
    Strategy,
    TaskId,
    Verified,
    Verify,
)
from specmesh.orchestrator.strategies.kit.draft_chain import DraftChain
from specmesh.orchestrator.strategies.kit.growing_tree import GrowingTree
from specmesh.orchestrator.strategies.kit.progress import Progress


class Speculative(Strategy):
    """See ``Strategy``. One task is under way at a time: a draft, or the verification of it."""

    def __init__(self, goal: Goal) -> None:
        self._fixed = goal.lookahead
        self._adaptive = AdaptiveLookahead()
        self._progress = Progress(goal)
        self._capacity = Capacity()
        self._task: TaskId = 0
        self._verifying = False
        self._growth = GrowingTree(task=0)
        self._run = DraftChain()
        """What is verified."""

    def start(self, capacity: Capacity) -> Sequence[Command]:
        """See ``Strategy.start``."""
        self._capacity = capacity
        return [self._begin_round()]

    def handle(self, event: Event) -> Sequence[Command]:
        """See ``Strategy.handle``."""
        match event:
            case Drafted(task=self._task):
                self._growth.extend(event)
                return [self._verify()] if event.last else []
            case Verified(task=self._task, verdict=verdict):
                return self._conclude(verdict)
            case Failed(task=self._task) if self._verifying:
                return [GiveUp(self._task)]
            case Failed(task=self._task):
                return [self._verify()]  # what was drafted before the failure still counts
            case Capacity():
                self._capacity = event
                return []
            case _:
                return []

    def _begin_round(self) -> Command:
        room = self._progress.draftable - len(self._progress.token_ids)
        self._growth = GrowingTree(self._task + 1)
        if room < 1:
            return self._verify()
        return self._draft(self._fixed, room) if self._fixed else self._draft_while_it_pays(room)

    def _draft_while_it_pays(self, room: int) -> Command:
        capacity = self._capacity
        plan = self._adaptive.plan(capacity.target_s, capacity.drafter_s, capacity.target_token_s)
        if not plan.depth:
            return self._verify()
        # The drafter names the token it draws first, and so tells how sure it is of it.
        return self._draft(plan.depth, room, num_choices=1, stop=plan.stop)

    def _draft(
        self, depth: int, room: int, num_choices: int = 0, stop: DraftStop | None = None
    ) -> Draft:
        self._task += 1
        self._verifying = False
        depth = min(depth, room)
        return Draft(
            *(self._task, (), depth), levels_per_message=depth, num_choices=num_choices, stop=stop
        )

    def _verify(self) -> Verify:
        self._task += 1
        self._verifying = True
        self._run = self._growth.run_below(0)
        drawn_from = {n: each for n, each in enumerate(self._run.distributions) if each is not None}
        return Verify(self._task, (), TokenTree.chain(self._run.tokens), drawn_from)

    def _conclude(self, verdict: Verdict) -> list[Command]:
        num_accepted = len(verdict.accepted_nodes)
        if self._fixed is None:
            self._adaptive.observe(Outcome(num_accepted, self._run.confidences))
        said = (*self._run.tokens[:num_accepted], verdict.next_token)
        commands = self._progress.commit(said, num_accepted)
        return commands if self._progress.ended else [*commands, self._begin_round()]
