"""A thread on which the compiler of grammars has room: it recurses along a source."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

STACK_BYTES = 256 << 20
"""Address space, of which the compiler touches only as much as the source is nested."""
_sizing = threading.Lock()
"""The size of stacks is the process's, and two threads that set it would mix up their values."""


def deep_thread() -> ThreadPoolExecutor:
    """Return one thread with a stack of ``STACK_BYTES``."""
    executor = ThreadPoolExecutor(1, "grammar")
    with _sizing:
        usual = threading.stack_size(STACK_BYTES)
        try:
            executor.submit(int).result()  # starts the thread
        finally:
            threading.stack_size(usual)
    return executor
