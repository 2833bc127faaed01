"""Processes of Python that work for a command and that Ctrl-C ends without a word."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context

_INTERRUPT = (signal.SIGINT,)


@contextmanager
def processes(number: int) -> Iterator[ProcessPoolExecutor]:
    """Start ``number`` fresh processes, which last as long as the context."""
    with ProcessPoolExecutor(number, get_context("spawn"), _end_silently) as pool:
        # A terminal interrupts children, too. One that still imports what it needs would print a
        # traceback, so each begins with the signal blocked, as its parent has it meanwhile.
        former = signal.pthread_sigmask(signal.SIG_BLOCK, _INTERRUPT)
        try:
            for _ in range(number):  # each task starts a process, as long as none is idle
                pool.submit(_end_silently)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, former)
        yield pool


def _end_silently() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _INTERRUPT)
