"""The threads that compute forward passes, for other work between two of them."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any

_LIBRARIES = (None, "libgomp.so.1")
"""Where OpenMP may be: among what the whole process sees, or in PyTorch's own copy of GNU's."""


def run_by_team(address: int) -> Callable[[Any], None]:
    """Return the compiled function at ``address``, which takes a pointer, run by all threads at
    once that PyTorch uses for a forward pass of the calling thread. They wait for its next
    operation, so that they begin at once; threads of our own would compete with them.

    Without OpenMP, or where PyTorch is not loaded, the calling thread runs it alone. Other threads
    of Python go on in either case.
    """
    for library in _LIBRARIES:
        try:
            loaded = ctypes.CDLL(library, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
            parallel = loaded.GOMP_parallel
        except (OSError, AttributeError):
            continue
        parallel.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
        parallel.restype = None
        # As many threads as PyTorch has been told to use: another number would end some of them.
        return lambda table: parallel(address, table, 0, 0)
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address)
