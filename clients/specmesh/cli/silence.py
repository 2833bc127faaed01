"""Progress lines for long work, where no progress bar can be drawn."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

SECONDS_BETWEEN_LINES = 5.0
"""Longest silence of a command that works or waits."""
_START_S = 2.0
"""Silence before this module: a busy machine takes this long to import a command."""
_last_line_s = time.monotonic() - _START_S
"""The time at which any block last printed a line."""


@contextmanager
def lines(line: Callable[[float], str], console: Console) -> Iterator[None]:
    """While the block runs, print ``line(seconds since it began)`` every `SECONDS_BETWEEN_LINES`.

    The first line comes earlier if the command has been silent before the block.
    """
    began, ended = time.monotonic(), threading.Event()

    def tell() -> None:
        global _last_line_s  # blocks that follow each other share one silence
        silent_s = time.monotonic() - _last_line_s
        # Work that is done within a second needs no line.
        pause_s = min(SECONDS_BETWEEN_LINES, max(1.0, SECONDS_BETWEEN_LINES - silent_s))
        while not ended.wait(pause_s):
            pause_s, _last_line_s = SECONDS_BETWEEN_LINES, time.monotonic()
            console.print(line(_last_line_s - began), markup=False, highlight=False, soft_wrap=True)

    thread = threading.Thread(target=tell, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
