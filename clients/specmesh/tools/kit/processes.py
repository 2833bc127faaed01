"""Python worker processes that Ctrl-C ends without a traceback, and that end with their parent."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context, parent_process

_INTERRUPT = (signal.SIGINT,)


@contextmanager
def processes(number: int) -> Iterator[ProcessPoolExecutor]:
    """Start ``number`` fresh processes, which live as long as the context."""
    with ProcessPoolExecutor(number, get_context("spawn"), _begin) as pool:
        # A terminal also interrupts children. One that is still importing would print a
        # traceback, so each inherits the blocked signal from its parent.
        former = signal.pthread_sigmask(signal.SIG_BLOCK, _INTERRUPT)
        try:
            for _ in range(number):  # Each task starts a process while none is idle.
                pool.submit(_end_silently)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, former)
        yield pool


def _begin() -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _end_silently()


def _end_with_parent() -> None:
    """Wait for the parent to end: if a signal kills it, nobody tells its processes."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _end_silently() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _INTERRUPT)
