"""What the C library does with memory that is free again."""

from __future__ import annotations

import asyncio
import ctypes

PERIOD_SECONDS = 5.0
_M_ARENA_MAX = -8
"""Of ``malloc.h``."""


def use_one_heap() -> None:
    """Have all threads allocate from one heap; to be called before there are any others.

    glibc gives each thread a heap of its own. Of all heaps but the first ``malloc_trim`` leaves the
    free end alone, which is most of what a thread that read a large body has freed.
    """
    if (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
        mallopt(_M_ARENA_MAX, 1)


async def give_memory_back() -> None:
    """Return free pages to the system again and again, until cancelled.

    glibc keeps what is freed as long as anything beyond it in the heap is in use: a process that
    once held hundreds of megabytes in small blocks would keep nearly all of them. Other C libraries
    have no such call.
    """
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    while malloc_trim is not None:
        await asyncio.sleep(PERIOD_SECONDS)
        # In a thread: to look through a large heap takes milliseconds.
        await asyncio.to_thread(malloc_trim, 0)
