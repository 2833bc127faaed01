"""The event loop of servers: uvloop, which takes its turns outside Python."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from time import monotonic
from typing import Any, TypeVar

import uvloop

from specmesh.serving.process.event_loop import taking_all_wake_ups

T = TypeVar("T")


class ServerLoop(uvloop.Loop):
    """uvloop that takes all wake-ups of gRPC at once (``event_loop``), with the clock of asyncio.

    uvloop's own clock stands still while callbacks run, and counts milliseconds: a call that takes
    less would seem to take none. Its timers are kept by that clock, so that one may ring up to a
    millisecond early.
    """

    def add_reader(  # type: ignore[override]
        self, fd: Any, callback: Callable[..., object], *args: Any
    ) -> None:
        """Call ``callback`` whenever there is something to read from ``fd``."""
        super().add_reader(fd, taking_all_wake_ups(fd, callback), *args)

    time = staticmethod(monotonic)
    """Returns the seconds of a monotonic clock. It is asked many times per token: a method of ours
    would be one call more each time."""


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run ``main`` as ``asyncio.run`` does, with a ``ServerLoop``."""
    with asyncio.Runner(loop_factory=ServerLoop) as runner:
        return runner.run(main)
