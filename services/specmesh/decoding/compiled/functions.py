"""The function that numba compiles, with those that it calls, when a process prepares it."""

from __future__ import annotations

import ctypes
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numba
from numba.core import types

from specmesh.decoding import noise
from specmesh.decoding.compiled.choice import Find, Team
from specmesh.decoding.compiled.rows_kernel import find_tokens_for

_untyped_types: Any = types
_SIGNATURE = types.void(_untyped_types.CPointer(types.int64))


class Functions(NamedTuple):
    """The compiled function ``find_tokens`` of rows_kernel.py, run ``alone`` by the calling thread,
    or by a ``team`` of threads.

    Alone it keeps the interpreter's lock: to give it up for each row would be to wait for a busy
    event loop after each.
    """

    alone: Find
    team: Team
    kept: object
    """What must live as long as the function."""


def compile_functions(team_for: Callable[[int], Team]) -> Functions:
    """Compile it, or read what an earlier process has left on the disk."""
    compiled = _compiled(find_tokens_for(_sources()))
    alone = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(compiled.address)
    return Functions(alone, team_for(compiled.address), compiled)


def _sources() -> int:
    """Return a number that identifies the code of this package, and what it is made of.

    Numba takes code on the disk for current if the file of its function is; what the function
    calls is in other files.
    """
    files = (Path(noise.__file__), *sorted(Path(__file__).parent.glob("*.py")))
    return zlib.crc32(b"".join(file.read_bytes() for file in files))


def _compiled(function: Find) -> Any:
    """Return ``function`` compiled, and kept on the disk where that can be."""
    try:
        return numba.cfunc(_SIGNATURE, cache=True, error_model="numpy")(function)
    except Exception:  # whatever keeps it from the disk: no folder, no space, a broken file
        return numba.cfunc(_SIGNATURE, error_model="numpy")(function)
