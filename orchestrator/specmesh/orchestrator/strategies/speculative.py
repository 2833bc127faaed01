"""Speculative decoding: draft a chain of γ tokens, verify it, start over where it ended.

Leviathan et al. 2023, Algorithm 1, with γ = ``Goal.lookahead``. Drafting and verifying take
turns; a draft that fails costs its round the speculation, not the answer.
"""

from __future__ import annotations

from collections.abc import Sequence

from specmesh.decoding.sampling import Distribution
from specmesh.decoding.tree import EMPTY, TokenTree
from specmesh.orchestrator.strategies.base import (
    Capacity,
    Command,
    Draft,
    Drafted,
    Event,
    Failed,
    GiveUp,
    Goal,
    TaskId,
    Verified,
    Verify,
)
from specmesh.orchestrator.strategies.progress import Progress

DEFAULT_LOOKAHEAD = 4


class Speculative:
    """See ``Strategy``. One task is under way at a time: a draft, or the verification of it."""

    def __init__(self, goal: Goal) -> None:
        self._lookahead = goal.lookahead or DEFAULT_LOOKAHEAD
        self._progress = Progress(goal)
        self._task: TaskId = 0
        self._verifying = False
        self._tree: TokenTree = EMPTY
        self._distributions: dict[int, Distribution] = {}

    def start(self, capacity: Capacity) -> Sequence[Command]:  # noqa: ARG002 - one of each is all it takes
        """See ``Strategy.start``."""
        return [self._begin_round()]

    def handle(self, event: Event) -> Sequence[Command]:
        """See ``Strategy.handle``."""
        match event:
            case Drafted(task=self._task):
                self._tree = self._tree.extend(event.token_ids, event.parents)
                self._distributions |= event.distributions
                return [self._verify()] if event.last else []
            case Verified(task=self._task, verdict=verdict):
                accepted = self._tree.tokens_on(verdict.accepted_nodes)
                said = (*accepted, verdict.next_token)
                commands = self._progress.commit(said, len(accepted))
                return commands if self._progress.ended else [*commands, self._begin_round()]
            case Failed(task=self._task) if self._verifying:
                return [GiveUp(self._task)]
            case Failed(task=self._task):
                return [self._verify()]  # what was drafted before the failure still counts
            case _:
                return []

    def _begin_round(self) -> Command:
        self._tree, self._distributions = EMPTY, {}
        depth = min(self._lookahead, self._progress.draftable - len(self._progress.token_ids))
        if depth < 1:
            return self._verify()
        self._task += 1
        self._verifying = False
        return Draft(self._task, (), depth, levels_per_message=depth)

    def _verify(self) -> Verify:
        self._task += 1
        self._verifying = True
        return Verify(self._task, (), self._tree, self._distributions)
