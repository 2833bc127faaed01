"""What the C library does with memory that is free again."""

from __future__ import annotations

import asyncio
import ctypes

PERIOD_SECONDS = 5.0


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
