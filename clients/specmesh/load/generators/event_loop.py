"""An event loop with microsecond timers; those of asyncio are up to a millisecond late.

epoll waits in whole milliseconds, and asyncio rounds up, which would delay every request. Here
select, whose timeout is in microseconds, waits on the file descriptor of the epoll instead.
"""

from __future__ import annotations

import asyncio
import select
import selectors
import sys


class _PreciseSelector(selectors.DefaultSelector):  # type: ignore[misc, valid-type, unused-ignore]
    """A selector whose timeouts are exact to the microsecond."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return the ready keys, as the base class does."""
        if timeout is not None and timeout > 0:
            select.select([self.fileno()], [], [], timeout)
            timeout = 0
        found: list[tuple[selectors.SelectorKey, int]] = super().select(timeout)
        return found


def precise_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop; outside Linux, which alone has epoll, the default one of asyncio."""
    if sys.platform != "linux":
        return asyncio.new_event_loop()
    from specmesh.serving.process.event_loop import GrpcEventLoop  # not on Windows

    return GrpcEventLoop(_PreciseSelector())
