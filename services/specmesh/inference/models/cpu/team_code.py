"""Compiled functions for the threads that compute forward passes.

Apart from ``inference/team.py``, which processes without such functions import as well: vLLM cannot
load a model where numba was imported before.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from specmesh.decoding.compiled.choice import Find, Team
from specmesh.decoding.compiled.compilation import compiled
from specmesh.inference.team import team_for, tell_of_compiling


class TeamCode(NamedTuple):
    """A compiled function, run by a ``team`` of threads, or ``alone`` by the calling thread, which
    keeps the interpreter's lock: for what takes a few microseconds."""

    team: Team
    alone: Find
    kept: object
    """The objects that must live as long as the function."""


def compiled_for_team(
    function: Callable[[Any], None], files: Iterable[Path], fastmath: Collection[str] = ()
) -> TeamCode:
    """Return ``function`` compiled, run by the threads of ``team_for``; the other arguments are
    those of ``compiled``."""
    code = compiled(function, files, fastmath, tell_of_compiling)
    return TeamCode(
        team_for(code.address), ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(code.address), code
    )
