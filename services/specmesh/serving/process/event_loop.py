"""The event loop of a process that speaks gRPC: as many wake-ups as it has, and no more.

gRPC's thread writes a byte to a socket for each of its events, and gRPC's handler in the loop reads
one byte a turn, however many events it takes. While the loop is busy, bytes pile up: each costs a
turn for nothing later on, and 278 of them fill the socket, whereupon that thread waits, and with it
whatever arrives for any call, for one event a turn. With 40 bad requests at a time beside it, a
stream stood still for 0.48 s, and for 0.10 s with this loop; 256 streams at once go through one
process 1.3 times as fast, one is as fast as before.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import sys
import termios
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")

_POLLER = "PollerCompletionQueue"
"""gRPC's class whose handler that is; any other handler is left as it is."""


class GrpcEventLoop(asyncio.SelectorEventLoop):
    """asyncio's own loop, which takes all of gRPC's wake-ups in one turn."""

    def add_reader(  # type: ignore[override]
        self, fd: Any, callback: Callable[..., object], *args: Any
    ) -> None:
        """Call ``callback`` whenever there is something to read from ``fd``."""
        if isinstance(callback, partial) and _is_pollers(callback):
            number = fd if isinstance(fd, int) else fd.fileno()
            super().add_reader(fd, partial(_leave_one_byte, number, callback), *args)
        else:
            super().add_reader(fd, callback, *args)


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run ``main`` as ``asyncio.run`` does, with a ``GrpcEventLoop``."""
    with asyncio.Runner(loop_factory=GrpcEventLoop) as runner:
        return runner.run(main)


def _is_pollers(callback: partial[object]) -> bool:
    return type(getattr(callback.func, "__self__", None)).__name__ == _POLLER


def _leave_one_byte(fd: int, callback: Callable[..., object], *args: object) -> None:
    """Read all but the byte that ``callback`` reads."""
    count = bytearray(4)
    fcntl.ioctl(fd, termios.FIONREAD, count)
    if (waiting := int.from_bytes(count, sys.byteorder)) > 1:
        os.read(fd, waiting - 1)
    callback(*args)
