"""The target alone, one token per call: the baseline of every other strategy."""

from __future__ import annotations

from collections.abc import Sequence

from specmesh.decoding.trees.tree import EMPTY
from specmesh.orchestrator.strategies.base import Goal, Strategy
from specmesh.orchestrator.strategies.commands import Command, GiveUp, Verify
from specmesh.orchestrator.strategies.events import Capacity, Event, Failed, Verified
from specmesh.orchestrator.strategies.kit.progress import Progress


class Autoregressive(Strategy):
    """Verifies an empty tree again and again, each time for one token."""

    needs_drafter = asks_drafter = False
    options = frozenset()

    def __init__(self, goal: Goal) -> None:
        self._progress = Progress(goal)
        self._task = 0

    def start(self, capacity: Capacity) -> Sequence[Command]:  # noqa: ARG002 - one replica is enough
        """Return the first verification."""
        return [self._verify()]

    def handle(self, event: Event) -> Sequence[Command]:
        """Commit a token and ask for the next."""
        match event:
            case Verified(task=self._task, verdict=verdict):
                commands = self._progress.commit((verdict.next_token,), num_accepted=0)
                return commands if self._progress.ended else [*commands, self._verify()]
            case Failed(task=self._task):
                return [GiveUp(self._task)]
            case _:
                return []

    def _verify(self) -> Verify:
        self._task += 1
        return Verify(self._task, (), EMPTY)
