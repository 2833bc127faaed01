"""The target alone, one token a call: the yardstick for every other strategy."""

from __future__ import annotations

from collections.abc import Sequence

from specmesh.decoding.tree import EMPTY
from specmesh.orchestrator.strategies.base import (
    Command,
    Event,
    Failed,
    Finish,
    GiveUp,
    Goal,
    Verified,
    Verify,
)
from specmesh.orchestrator.strategies.progress import Progress


class Autoregressive:
    """See ``Strategy``."""

    def __init__(self, goal: Goal) -> None:
        self._progress = Progress(goal)
        self._task = 0

    def start(self) -> Sequence[Command]:
        """See ``Strategy.start``."""
        self._task += 1
        return [Verify(self._task, (), EMPTY)]

    def handle(self, event: Event) -> Sequence[Command]:
        """See ``Strategy.handle``."""
        if event.task != self._task:
            return []
        match event:
            case Verified(verdict=verdict):
                commands = self._progress.commit((), verdict.next_token)
                if isinstance(commands[-1], Finish):
                    return commands
                return [*commands, *self.start()]
            case Failed(task=task):
                return [GiveUp(task)]
            case _:
                raise AssertionError(f"nothing was drafted: {event}")
