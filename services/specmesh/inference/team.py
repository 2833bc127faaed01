"""Compiled code for the threads that compute forward passes, for other work between two of them."""

from __future__ import annotations

import ctypes
import logging
import os
from functools import partial
from typing import Any

from specmesh.decoding.compiled.choice import Find, Team

log = logging.getLogger(__name__)

_LIBRARIES = (None, "libgomp.so.1")
"""The places where OpenMP may be: among what the whole process sees, or in PyTorch's own copy of
GNU's."""


def team_for(address: int) -> Team:
    """Return the compiled function at ``address``, which takes a pointer, run by all threads at
    once that PyTorch uses for a forward pass of the calling thread. They wait for its next
    operation, so that they begin at once; threads of our own would compete with them.

    Without OpenMP, or where PyTorch is not loaded, the calling thread runs it alone. Other threads
    of Python go on in either case.
    """
    alone: Find = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address)
    for library in _LIBRARIES:
        try:
            loaded = ctypes.CDLL(library, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
            parallel = loaded.GOMP_parallel
            # Asked for each forward pass, and so without giving up the interpreter's lock.
            num_threads = ctypes.PyDLL(library, handle=loaded._handle).omp_get_max_threads
        except (OSError, AttributeError):
            continue
        parallel.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
        parallel.restype = None
        return Team(partial(_run, parallel, address), num_threads)
    return Team(alone, lambda: 1)


def tell_of_compiling() -> None:
    """Log that a kernel is being compiled, since the disk does not have it: the first start of a
    process takes long because of it."""
    log.info(
        "compiling kernels for this processor: a minute or two, once where the disk keeps them"
    )


def _run(parallel: Any, address: int, table: Any) -> None:
    # As many threads as PyTorch has been told to use: another number would end some of them.
    parallel(address, table, 0, 0)
