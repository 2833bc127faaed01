"""Draft a chain or a tree, verify it, start over where what is accepted of it ended."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from specmesh.orchestrator.strategies.base import (
    Cancel,
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


class DraftThenVerify(Strategy):
    """Strategies whose drafts and verifications take turns; they say how far to draft.

    One task is under way at a time, and it hangs from what is committed: a draft, or the
    verification of all that it brought. A draft that fails costs its round the speculation, not
    the answer; with a verification that fails the answer fails.
    """

    def __init__(self, goal: Goal) -> None:
        self._progress = Progress(goal)
        self._capacity = Capacity()
        self._task: TaskId = 0
        self._verifying = False
        self._growth = GrowingTree(task=0)
        self._verified = self._growth.whole
        """What is verified."""

    @abstractmethod
    def _draft(self, task: TaskId, room: int) -> Draft | None:
        """The next draft, of at most ``room`` >= 1 levels; None for a round without one."""

    def _is_enough(self, chain: DraftChain) -> bool:  # noqa: ARG002 - for those who override it
        """Whether to verify what was drafted so far, before the draft has ended.

        Called for each message, so with ``levels_per_message`` of 1 for each level. ``chain``
        has at least one token; of a tree it is the first child everywhere. The last token may
        decide, because it is verified, too (see ``base.py``).
        """
        return False

    def _learn(self, growth: GrowingTree, verified: Verified) -> None:
        """Take note of a verdict on ``growth``."""

    def start(self, capacity: Capacity) -> Sequence[Command]:
        """The first draft."""
        self._capacity = capacity
        return [self._begin_round()]

    def handle(self, event: Event) -> Sequence[Command]:
        """The verification once a draft has ended, the next draft once there is a verdict."""
        match event:
            case Drafted(task=self._task):
                self._growth.extend(event)
                if event.last:
                    return [self._verify()]
                chain = self._growth.chain_below(0)
                enough = bool(chain.tokens) and self._is_enough(chain)
                return [Cancel(self._task), self._verify()] if enough else []
            case Verified(task=self._task):
                return self._conclude(event)
            case Failed(task=self._task) if self._verifying:
                return [GiveUp(self._task)]
            case Failed(task=self._task):
                return [self._verify()]  # what was drafted before the failure still counts
            case Capacity():
                self._capacity = event
        return []

    def _begin_round(self) -> Command:
        room = self._progress.draftable - len(self._progress.token_ids)
        self._growth = GrowingTree(self._task + 1)
        draft = self._draft(self._task + 1, room) if room > 0 else None
        if draft is None:
            return self._verify()
        self._task = draft.task
        self._verifying = False
        return draft

    def _verify(self) -> Verify:
        self._task += 1
        self._verifying = True
        drafted = self._verified = self._growth.whole
        return Verify(self._task, (), drafted.tree, drafted.distributions)

    def _conclude(self, verified: Verified) -> list[Command]:
        verdict = verified.verdict
        accepted = verdict.accepted_nodes
        self._learn(self._growth, verified)
        tokens = (*self._verified.tree.tokens_on(accepted), verdict.next_token)
        commands = self._progress.commit(tokens, len(accepted), recovered=verdict.recovered)
        return commands if self._progress.ended else [*commands, self._begin_round()]
