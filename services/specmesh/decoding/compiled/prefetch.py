"""The request to the processor for memory that compiled code will read soon."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import extending
from numba.core import cgutils, types
from numpy.typing import NDArray

_READ, _SECOND_CACHE, _DATA = 0, 2, 1
_untyped: Any = cgutils
_intrinsic: Any = extending.intrinsic


def _request(_typing: Any, array: Any, _at: Any) -> tuple[Any, Any]:
    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        data = context.make_array(array)(context, builder, arguments[0]).data
        address, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        request = _untyped.get_or_insert_function(
            builder.module,
            ir.FunctionType(ir.VoidType(), [address, number, number, number]),
            "llvm.prefetch.p0i8",
        )
        element = builder.bitcast(builder.gep(data, [arguments[1]]), address)
        builder.call(request, [element, *map(number, (_READ, _SECOND_CACHE, _DATA))])
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


prefetch: Callable[[NDArray[np.float32], int], None] = _intrinsic(_request)
"""Ask for the memory of the element with this index, and do not wait for it. The index may be
beyond the end of the array: nothing is read then."""
