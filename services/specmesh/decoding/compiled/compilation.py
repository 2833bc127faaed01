"""Functions of a table of int64, compiled by numba and kept on the disk."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

import numba
from numba.core import types

_untyped_types: Any = types
_SIGNATURE = types.void(_untyped_types.CPointer(types.int64))


def compiled(function: Callable[[Any], None], fastmath: Collection[str] = ()) -> Any:
    """Return ``function``, which takes a pointer to int64, compiled; its ``address`` is that of
    machine code as long as it lives. It is kept on the disk where that can be. ``fastmath`` are
    LLVM's flags that allow another rounding."""
    options: dict[str, Any] = {"error_model": "numpy", "fastmath": set(fastmath)}
    try:
        return numba.cfunc(_SIGNATURE, cache=True, **options)(function)
    except Exception:  # whatever keeps it from the disk: no folder, no space, a broken file
        return numba.cfunc(_SIGNATURE, **options)(function)


def number_of(files: Iterable[Path]) -> int:
    """Return a number that identifies the code in ``files``.

    Numba takes code on the disk for current if the file of its function is; what the function
    calls is in other files. A function that names this number is compiled anew if any changes.
    """
    return zlib.crc32(b"".join(file.read_bytes() for file in files))
