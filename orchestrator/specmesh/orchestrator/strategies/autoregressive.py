"""The target alone, one token per forward: the baseline of every other strategy."""

from __future__ import annotations

from collections.abc import Sequence

from specmesh.decoding.trees.tree import EMPTY
from specmesh.orchestrator.strategies.base import Goal, Strategy
from specmesh.orchestrator.strategies.commands import Command, GiveUp, Verify
from specmesh.orchestrator.strategies.events import Capacity, Event, Failed, Verified
from specmesh.orchestrator.strategies.kit.further import num_further
from specmesh.orchestrator.strategies.kit.progress import Progress


class Autoregressive(Strategy):
    """Verifies an empty tree again and again, each time for one token and those after it."""

    needs_drafter = asks_drafter = False
    options = frozenset()

    def __init__(self, goal: Goal) -> None:
        self._progress = Progress(goal)
        self._capacity = Capacity()
        self._task = 0

    def start(self, capacity: Capacity) -> Sequence[Command]:
        """Return the first verification."""
        self._capacity = capacity
        return [self._verify()]

    def handle(self, event: Event) -> Sequence[Command]:
        """Commit a token and ask for the next."""
        match event:
            case Verified(task=self._task):
                commands = self._progress.commit(event.own_tokens, num_accepted=0)
                if event.more or self._progress.ended:
                    return commands
                return [*commands, self._verify()]
            case Failed(task=self._task):
                return [GiveUp(self._task)]
            case Capacity():
                self._capacity = event
        return []

    def _verify(self) -> Verify:
        self._task += 1
        further = num_further(self._capacity, self._progress.remaining)
        return Verify(self._task, (), EMPTY, num_further=further, may_wait=further > 0)
