"""An event loop that wakes in time: asyncio's own is up to a millisecond late.

epoll waits in whole milliseconds, and asyncio rounds up. That would be the lag of each request, so
the wait is done by select on the epoll's own file descriptor, which counts in microseconds.
"""

from __future__ import annotations

import asyncio
import select
import selectors
import sys

from specmesh.serving.process.event_loop import GrpcEventLoop


class _PreciseSelector(selectors.DefaultSelector):  # type: ignore[misc, valid-type, unused-ignore]
    """Waits for as long as it is told, to the microsecond."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """As the selector it derives from."""
        if timeout is not None and timeout > 0:
            select.select([self.fileno()], [], [], timeout)
            timeout = 0
        found: list[tuple[selectors.SelectorKey, int]] = super().select(timeout)
        return found


def precise_loop() -> asyncio.AbstractEventLoop:
    """A new event loop; where there is no epoll, the one that asyncio makes."""
    if sys.platform != "linux":
        return asyncio.new_event_loop()
    return GrpcEventLoop(_PreciseSelector())
