"""Immediate effects of cancelling a strategy's task, before its coroutine is cancelled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class TaskCancellation:
    """Cancels one task: frees the slots of its calls, so that other calls may take them, and ends a
    draft, so that the drafter stops before another request has to wait for it.

    Each effect applies only while its block runs, so finished calls are left alone.
    """

    def __init__(self) -> None:
        self.requested = False
        self._effects: list[Callable[[], None]] = []

    def cancel(self) -> None:
        """Cancel the task, whose result is no longer wanted."""
        self.requested = True
        for effect in list(self._effects):
            effect()

    @contextmanager
    def calling(self, effect: Callable[[], None]) -> Iterator[None]:
        """Call ``effect`` if the task is cancelled within the block."""
        self._effects.append(effect)
        try:
            yield
        finally:
            self._effects.remove(effect)
