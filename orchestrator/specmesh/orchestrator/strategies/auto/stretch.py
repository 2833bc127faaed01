"""A stretch of an answer with one strategy, whose tasks have numbers of their own in the answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from specmesh.orchestrator.strategies.base import Strategy
from specmesh.orchestrator.strategies.commands import (
    Assess,
    Cancel,
    Command,
    Commit,
    Draft,
    GiveUp,
    TaskId,
    Verify,
)
from specmesh.orchestrator.strategies.events import Capacity, Drafted, Event, Verified


class StrategyStretch:
    """Runs ``strategy``. Its tasks, which it numbers from 1, have higher numbers than ``after``, so
    that each task of an answer draws with noise of its own (``kit/draft_noise.py``)."""

    def __init__(self, strategy: Strategy, after: TaskId) -> None:
        self.last_task = after
        """The highest number of its tasks."""
        self._strategy = strategy
        self._after = after
        self._running: set[TaskId] = set()
        """Tasks that may still have events."""
        self._drafting: set[TaskId] = set()
        """The running tasks that draft."""

    def start(self, capacity: Capacity) -> list[Command]:
        """Return the strategy's first commands."""
        return self._sent(self._strategy.start(capacity))

    def handle(self, event: Event) -> list[Command]:
        """Return what the strategy does upon ``event``: nothing if it is of an earlier stretch."""
        if not isinstance(event, Capacity):
            if event.task <= self._after:
                return []
            goes_on = isinstance(event, Drafted) and not event.last
            if not (goes_on or (isinstance(event, Verified) and event.more)):
                self._ended(event.task)
            if self._after:
                event = self._own(event)
        return self._sent(self._strategy.handle(event))

    def end(self, commands: Sequence[Command]) -> list[Command]:
        """Return what remains of its latest ``commands`` if the stretch ends with their commits:
        none of its tasks runs on, and none begins."""
        begun = {each.task for each in commands if isinstance(each, Draft | Verify | Assess)}
        kept: list[Command] = [each for each in commands if isinstance(each, Commit | Cancel)]
        return kept + [Cancel(task) for task in sorted(self._running - begun)]

    def is_drafting(self, task: TaskId) -> bool:
        """Return whether ``task`` is a draft under way."""
        return task in self._drafting

    def _ended(self, task: TaskId) -> None:
        self._running.discard(task)
        self._drafting.discard(task)

    def _own(self, event: Event) -> Event:
        """Return ``event`` with the strategy's own number of its task."""
        assert not isinstance(event, Capacity)
        task = event.task - self._after
        if isinstance(event, Verified) and event.next_draft is not None:
            return replace(event, task=task, next_draft=replace(event.next_draft, task=task))
        return replace(event, task=task)

    def _sent(self, commands: Sequence[Command]) -> list[Command]:
        """Return ``commands`` with the answer's numbers of their tasks."""
        return [self._numbered(command) for command in commands]

    def _numbered(self, command: Command) -> Command:
        match command:
            case Draft() | Verify() | Assess():
                task = command.task + self._after
                self._running.add(task)
                if isinstance(command, Draft):
                    self._drafting.add(task)
                self.last_task = max(self.last_task, task)
                return replace(command, task=task) if self._after else command
            case Cancel(task=own):
                self._ended(own + self._after)
                return Cancel(own + self._after)
            case GiveUp(failed=own):
                return GiveUp(own + self._after)
        return command
