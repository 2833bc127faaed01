"""The memory that a process gives back to the system, and the descriptors that it may take."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import logging
import os
import resource

log = logging.getLogger(__name__)

PERIOD_SECONDS = 5.0
_M_ARENA_MAX = -8
"""The constant of ``malloc.h``."""


def use_one_heap() -> None:
    """Make all threads allocate from one heap; call it before any other thread starts.

    glibc gives each thread a heap of its own, and ``malloc_trim`` trims the free end of the first
    heap only. In others, that end is most of what a thread frees after it has read a large body.
    """
    if (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
        mallopt(_M_ARENA_MAX, 1)


async def give_memory_back() -> None:
    """Return free pages to the system periodically, until cancelled.

    glibc keeps freed memory while anything beyond it in the heap is in use: a process that once
    held hundreds of megabytes in small blocks would keep nearly all of them. With a C library that
    has no ``malloc_trim``, do nothing.
    """
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    while malloc_trim is not None:
        await asyncio.sleep(PERIOD_SECONDS)
        # Walking a large heap takes milliseconds, so it runs in a thread.
        await asyncio.to_thread(malloc_trim, 0)


def allow_all_descriptors() -> None:
    """Raise this process's limit of open files to what the operator allows. The lower one, mostly
    1,024, is for programs that call ``select``; every connection takes a descriptor."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def report_lack_of_descriptors() -> None:
    """Log each time that this process comes to its limit of open files, until cancelled.

    uvloop then closes new connections without a word.
    """
    is_lacking = False
    while True:
        was_lacking, is_lacking = is_lacking, not _can_open()
        if is_lacking and not was_lacking:
            most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            log.warning("too many open files: new connections are closed", extra={"limit": most})
        await asyncio.sleep(PERIOD_SECONDS)


def _can_open() -> bool:
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return error.errno not in {errno.EMFILE, errno.ENFILE}
    return True
