"""Immediate effects of cancelling a strategy's task, before its coroutine is cancelled."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType


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

    def calling(self, effect: Callable[[], None]) -> _Calling:
        """Call ``effect`` if the task is cancelled within the block."""
        return _Calling(self._effects, effect)


class _Calling:
    """Has an effect among ``effects`` while its block runs."""

    def __init__(self, effects: list[Callable[[], None]], effect: Callable[[], None]) -> None:
        self._effects = effects
        self._effect = effect

    def __enter__(self) -> None:
        self._effects.append(self._effect)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._effects.remove(self._effect)
