"""Draft a chain or a tree, verify it, and start over where its accepted part ended."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from specmesh.orchestrator.strategies.base import Goal, Strategy
from specmesh.orchestrator.strategies.commands import Cancel, Command, Draft, GiveUp, TaskId, Verify
from specmesh.orchestrator.strategies.events import Capacity, Drafted, Event, Failed, Verified
from specmesh.orchestrator.strategies.kit.draft_chain import DraftChain
from specmesh.orchestrator.strategies.kit.further import num_further
from specmesh.orchestrator.strategies.kit.growing_tree import GrowingTree
from specmesh.orchestrator.strategies.kit.progress import Progress


class DraftThenVerify(Strategy):
    """Base of strategies that alternate drafts and verifications; they decide how far to draft.

    One task runs at a time, and it starts from the committed tokens: a draft, or the verification
    of all its tokens. Where no draft pays, the target decodes on until one does. A failed draft
    costs its round the speculation, not the answer; a failed verification fails the answer.
    """

    def __init__(self, goal: Goal) -> None:
        self._progress = Progress(goal)
        self._capacity = Capacity()
        self._task: TaskId = 0
        self._verifying = False
        self._growth = GrowingTree(task=0)
        self._verified = self._growth.whole
        """The tree that is being verified."""

    @abstractmethod
    def _draft(self, task: TaskId, room: int) -> Draft | None:
        """Return the next draft, of at most ``room`` >= 1 levels; None for a round without one."""

    def _is_enough(self, chain: DraftChain) -> bool:  # noqa: ARG002 - used by overrides
        """Return whether to verify what was drafted so far, before the draft has ended.

        This is called for each message, so for each level with ``levels_per_message`` of 1.
        ``chain`` has at least one token; for a tree it follows the first child everywhere. The last
        token may decide, because it is verified too (see ``base.py``).
        """
        return False

    def _learn(self, growth: GrowingTree, verified: Verified) -> None:
        """Learn from a verdict on ``growth``."""

    def start(self, capacity: Capacity) -> Sequence[Command]:
        """Return the first draft."""
        self._capacity = capacity
        return self._begin_round()

    def handle(self, event: Event) -> Sequence[Command]:
        """Return the verification once a draft has ended, and the next draft after a verdict."""
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
                return [self._verify()]  # the tokens drafted before the failure still count
            case Capacity():
                self._capacity = event
        return []

    def _begin_round(self, *, goes_on: bool = False) -> list[Command]:
        """Return the next draft, or a verification of nothing unless one ``goes_on`` already."""
        room = self._progress.draftable - len(self._progress.token_ids)
        draft = self._draft(self._task + 1, room) if room > 0 else None
        if draft is None and goes_on:
            return []
        self._growth = GrowingTree(self._task + 1)
        if draft is None:
            return [self._verify(num_further(self._capacity, self._progress.remaining))]
        cancelled: list[Command] = [Cancel(self._task)] if goes_on else []
        self._task = draft.task
        self._verifying = False
        return [*cancelled, draft]

    def _verify(self, num_further: int = 0) -> Verify:
        self._task += 1
        self._verifying = True
        drafted = self._verified = self._growth.whole
        return Verify(
            *(self._task, (), drafted.tree, drafted.distributions),
            num_further=num_further,
            may_wait=num_further > 0,
        )

    def _conclude(self, verified: Verified) -> list[Command]:
        verdict = verified.verdict
        accepted = verdict.accepted_nodes
        self._learn(self._growth, verified)
        tokens = (*self._verified.tree.tokens_on(accepted), *verified.own_tokens)
        commands = self._progress.commit(tokens, len(accepted), recovered=verdict.recovered)
        if self._progress.ended:
            return commands
        return [*commands, *self._begin_round(goes_on=verified.more)]
