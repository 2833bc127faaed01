"""Functions of a table of int64, compiled by numba and kept on the disk."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from types import FunctionType
from typing import Any

import numba
from numba.core import compiler, types
from numba.core.registry import cpu_target

_untyped_types: Any = types
_untyped_target: Any = cpu_target
_untyped_compiler: Any = compiler.Compiler
_SIGNATURE = types.void(_untyped_types.CPointer(types.int64))


def compiled(
    function: Callable[[Any], None],
    files: Iterable[Path],
    fastmath: Collection[str] = (),
    tell: Callable[[], None] = lambda: None,
) -> Any:
    """Return ``function``, which takes a pointer to int64, compiled; its ``address`` is that of
    machine code as long as it lives. It is kept on the disk where that can be.

    ``files`` have its code and all that it calls. ``fastmath`` are LLVM's flags that allow another
    rounding. ``tell`` is called before it is compiled, which takes seconds, and not where it is on
    the disk.
    """
    named = _copied(function, code_name(function, files))

    def told_compiler(*arguments: Any) -> Any:
        tell()
        return _untyped_compiler(*arguments)

    options: dict[str, Any] = {
        "error_model": "numpy",
        "fastmath": set(fastmath),
        "pipeline_class": told_compiler,
    }
    try:
        return numba.cfunc(_SIGNATURE, cache=True, **options)(named)
    except Exception:  # whatever keeps it from the disk: no folder, no space, a broken file
        return numba.cfunc(_SIGNATURE, **options)(named)


def code_name(function: Callable[[Any], None], files: Iterable[Path]) -> str:
    """Return a name under which no other machine code is kept.

    Numba takes code on the disk for current if the file of its function is, and numbers what it
    keeps of a function without a lock, so that processes which compile different code at once may
    each get the other's. So the name says what the code is made of: the files, the constants of a
    function within a function, the processor and the release of numba.
    """
    assert isinstance(function, FunctionType)
    constants = [cell.cell_contents for cell in function.__closure__ or ()]
    target = _untyped_target.target_context.codegen().magic_tuple()
    made_of = b"".join(file.read_bytes() for file in files)
    number = zlib.crc32(f"{numba.__version__} {target} {constants}".encode(), zlib.crc32(made_of))
    return f"{function.__name__}_{number:08x}"


def _copied(function: Callable[[Any], None], name: str) -> Callable[[Any], None]:
    assert isinstance(function, FunctionType)
    code, names = function.__code__, function.__globals__
    copy = FunctionType(code, names, function.__name__, closure=function.__closure__)
    copy.__qualname__ = name
    return copy
