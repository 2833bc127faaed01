"""What happens at once when a strategy cancels a task, before its coroutine is cancelled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class TaskCancellation:
    """Cancels one task: frees the slots of its calls, so that others may take them, and ends a
    draft, so that the drafter stops before another request has to wait for it.

    What is over is left alone: each effect lasts as long as its block.
    """

    def __init__(self) -> None:
        self.requested = False
        self._effects: list[Callable[[], None]] = []

    def cancel(self) -> None:
        """The result of the task is not wanted any more."""
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
