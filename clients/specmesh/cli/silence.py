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
"""Silence before a block: on a busy machine it takes this long to import a command's modules."""


@contextmanager
def lines(line: Callable[[float], str], console: Console) -> Iterator[None]:
    """While the block runs, print ``line(seconds since it began)`` every `SECONDS_BETWEEN_LINES`.

    The first line comes earlier, since the command may have been silent before the block.
    """
    began, ended = time.monotonic(), threading.Event()

    def tell() -> None:
        pause_s = max(0.0, SECONDS_BETWEEN_LINES - _START_S)
        while not ended.wait(pause_s):
            pause_s = SECONDS_BETWEEN_LINES
            console.print(line(time.monotonic() - began), highlight=False, soft_wrap=True)

    thread = threading.Thread(target=tell, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
