"""The doorbell of the engine: it wakes the thread, and says whether to wait for more calls."""

from __future__ import annotations

import queue
import time
from contextlib import suppress

from specmesh.decoding.predict.returns import Returns


class Doorbell:
    """Wakes the engine's thread, and tells it how long to wait for more calls."""

    def __init__(self) -> None:
        self._signals: queue.SimpleQueue[float | None] = queue.SimpleQueue()
        self._returns = Returns()

    # On any thread.

    def arrived(self, at: float) -> None:
        """Wake the engine's thread for a call that arrived at ``at``, by ``time.perf_counter``."""
        self._signals.put(at)

    def wake(self) -> None:
        """Wake the engine's thread."""
        self._signals.put(None)

    # On the engine's thread.

    def sleep(self) -> None:
        """Return after the next signal, or at once if there have been any."""
        self._take(self._signals.get())
        self.hear()

    def nap(self, seconds: float) -> None:
        """Return after the next signal, or after ``seconds``."""
        with suppress(queue.Empty):
            self._take(self._signals.get(timeout=seconds))
        self.hear()

    def waited_for_another(self, num_ready: int) -> bool:
        """Wait for another call than the ``num_ready`` that there are; return False, at once, if
        the next forward should begin."""
        self.hear()
        now = time.perf_counter()
        left_s = self._returns.awaited_until(num_ready, now) - now
        if left_s <= 0:
            return False
        with suppress(queue.Empty):
            self._take(self._signals.get(timeout=left_s))
        return True

    def hear(self) -> None:
        """Take in the signals that have come. Calls that are heard of before the callers of a
        forward are told count as no replies to it."""
        while not self._signals.empty():  # only this thread takes them out
            self._take(self._signals.get())

    def forward_ended(self, num_rows: int | None, seconds: float) -> None:
        """Record a forward of ``num_rows``; None if some calls need more than that one."""
        if num_rows is not None:
            self._returns.computed(num_rows, seconds)

    def answered(self, num_calls: int, at: float) -> None:
        """Record that ``num_calls`` are answered at ``at``."""
        self._returns.answered(num_calls, at)

    def _take(self, arrived_s: float | None) -> None:
        if arrived_s is not None:
            self._returns.arrived(arrived_s)
