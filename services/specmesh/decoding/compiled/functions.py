"""The function that numba compiles, with those that it calls, when a process prepares it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from specmesh.decoding import noise
from specmesh.decoding.compiled.choice import Find, Team
from specmesh.decoding.compiled.compilation import compiled
from specmesh.decoding.compiled.rows_kernel import find_tokens


class Functions(NamedTuple):
    """The compiled function ``find_tokens`` of rows_kernel.py, run ``alone`` by the calling thread,
    or by a ``team`` of threads.

    Alone it keeps the interpreter's lock: to give it up for each row would be to wait for a busy
    event loop after each.
    """

    alone: Find
    team: Team
    kept: object
    """The objects that must live as long as the function."""


def compile_functions(team_for: Callable[[int], Team], tell: Callable[[], None]) -> Functions:
    """Compile it, after calling ``tell``, or read what an earlier process has left on the disk."""
    function = compiled(find_tokens, _files(), tell=tell)
    alone = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(function.address)
    return Functions(alone, team_for(function.address), function)


def _files() -> Sequence[Path]:
    """Return the files of this package, and of what it is made of."""
    return (Path(noise.__file__), *sorted(Path(__file__).parent.glob("*.py")))
