"""Speculative decoding: draft a chain of γ tokens, verify it, start over where it ended.

Leviathan et al. 2023, Algorithm 1, with γ = ``Goal.lookahead``. Drafting and verifying take
turns; a draft that fails costs its round the speculation, not the answer.
"""

from __future__ import annotations

from collections.abc import Sequence

from specmesh.decoding.sampling import Distribution
from specmesh.decoding.tree import EMPTY, TokenTree
from specmesh.orchestrator.strategies.base import (
    Command,
    Draft,
    Drafted,
    Event,
    Failed,
    Finish,
    GiveUp,
    Goal,
    TaskId,
    Verified,
    Verify,
)
from specmesh.orchestrator.strategies.progress import Progress


class Speculative:
    """See ``Strategy``. One task is under way at a time: a draft, or the verification of it."""

    def __init__(self, goal: Goal) -> None:
        self._lookahead = goal.lookahead
        self._progress = Progress(goal)
        self._task: TaskId = 0
        self._verifying = False
        self._tree: TokenTree = EMPTY
        self._distributions: dict[int, Distribution] = {}

    def start(self) -> Sequence[Command]:
        """See ``Strategy.start``."""
        self._tree, self._distributions = EMPTY, {}
        # The target adds a token of its own, so the last one is never worth drafting.
        depth = min(self._lookahead, self._progress.remaining - 1)
        if depth < 1:
            return [self._verify()]
        self._task += 1
        self._verifying = False
        return [Draft(self._task, (), depth, levels_per_message=depth)]

    def handle(self, event: Event) -> Sequence[Command]:
        """See ``Strategy.handle``."""
        if event.task != self._task:
            return []
        match event:
            case Drafted():
                self._tree = self._tree.extend(event.token_ids, event.parents)
                self._distributions |= event.distributions
                return [self._verify()] if event.last else []
            case Verified(verdict=verdict):
                accepted = self._tree.tokens_on(verdict.accepted_nodes)
                commands = self._progress.commit(accepted, verdict.next_token)
                if isinstance(commands[-1], Finish):
                    return commands
                return [*commands, *self.start()]
            case Failed(task=task) if self._verifying:
                return [GiveUp(task)]
            case Failed():
                return [self._verify()]  # what was drafted before the failure still counts

    def _verify(self) -> Verify:
        self._task += 1
        self._verifying = True
        return Verify(self._task, (), self._tree, self._distributions)
