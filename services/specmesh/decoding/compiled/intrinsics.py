"""Things that numba has no word for: instructions of the processor, and memory that is not an
array's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import extending
from numba.core import cgutils, types

_READ, _SECOND_CACHE, _DATA = 0, 2, 1
_untyped_cgutils: Any = cgutils
_untyped_types: Any = types
_intrinsic: Callable[[Callable[..., Any]], Callable[..., Any]] = extending.intrinsic


@_intrinsic
def prefetch(_typing: Any, array: Any, _at: Any) -> tuple[Any, Any]:
    """Ask for the memory of element ``_at`` of a contiguous ``array``, and do not wait for it. It
    may be beyond the end: nothing is read then."""

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        data = context.make_array(array)(context, builder, arguments[0]).data
        ask_for(builder, builder.gep(data, [arguments[1]]))
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


def ask_for(builder: Any, pointer: Any) -> None:
    """Write the code of ``prefetch`` for what ``pointer`` points at."""
    address, number = ir.IntType(8).as_pointer(), ir.IntType(32)
    request = _untyped_cgutils.get_or_insert_function(
        builder.module,
        ir.FunctionType(ir.VoidType(), [address, number, number, number]),
        "llvm.prefetch.p0i8",
    )
    element = builder.bitcast(pointer, address)
    builder.call(request, [element, *map(number, (_READ, _SECOND_CACHE, _DATA))])


@_intrinsic
def take_number(_typing: Any, counter: Any) -> tuple[Any, Any]:
    """Return the number that ``counter``, a pointer to an int64, points at, and add 1 to it, as one
    step that no other thread comes between."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.atomic_rmw("add", arguments[0], ir.IntType(64)(1), "monotonic")

    return types.int64(counter), generate


def _reading(number: Any) -> Callable[..., Any]:
    """Return an intrinsic that takes an address, an int64, for a pointer to numbers of this
    type."""

    @_intrinsic
    def numbers_at(_typing: Any, _address: Any) -> tuple[Any, Any]:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

        return _untyped_types.CPointer(number)(types.int64), generate

    return numbers_at


floats_at = _reading(types.float32)
int64s_at = _reading(types.int64)
uint16s_at = _reading(types.uint16)
uint8s_at = _reading(types.uint8)
