"""Vectors of 16 float32 in LLVM's own words: not every release of it finds them in loops.

Numbers are float32, or the bits of bfloat16 as uint16. LLVM divides a vector into as many registers
as the processor's instructions need.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, cast

from llvmlite import ir
from numba import extending
from numba.core import cgutils, types

LANES = 16
NUM_KEYS, NUM_VALUES = 4, 8
"""The keys that are multiplied, and the values that are added, at a time."""

_FLOAT, _WORD, _SIZE = ir.FloatType(), ir.IntType(32), ir.IntType(64)
_VECTOR = ir.VectorType(_FLOAT, LANES)
_BFLOAT16_SHIFT = ir.Constant(ir.VectorType(_WORD, LANES), [16] * LANES)
_untyped_cgutils: Any = cgutils
_untyped_types: Any = types
_intrinsic: Callable[[Callable[..., Any]], Callable[..., Any]] = extending.intrinsic


@_intrinsic
def products(_typing: Any, query: Any, keys: Any, rows: Any) -> tuple[Any, Any]:
    """Return the products of ``query``, a contiguous array of float32, with the rows ``rows`` of
    ``keys``, a tuple of as many integers as results. The length is a multiple of 16; rows are
    contiguous."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        query_data, size = _data(context, builder, query, arguments[0])
        row_data = _rows(context, builder, keys, arguments[1], arguments[2], NUM_KEYS)
        sums = [_untyped_cgutils.alloca_once(builder, _VECTOR) for _ in row_data]
        for each in sums:
            builder.store(ir.Constant(_VECTOR, None), each)
        with _vectors(builder, size) as (at, _):
            vector = _load(builder, query_data, at)
            for data, each in zip(row_data, sums, strict=True):
                total = _multiplied(builder, vector, _load(builder, data, at), builder.load(each))
                builder.store(total, each)
        totals = [_sum(builder, builder.load(each)) for each in sums]
        return context.make_tuple(builder, signature.return_type, totals)

    return _untyped_types.UniTuple(types.float32, NUM_KEYS)(query, keys, rows), generate


@_intrinsic
def add_products(
    _typing: Any, result: Any, weights: Any, _first: Any, values: Any, rows: Any
) -> tuple[Any, Any]:
    """Add the rows ``rows`` of ``values``, a tuple of integers, to ``result``, multiplied by as
    many ``weights`` from ``_first`` on. ``result`` and ``weights`` are contiguous, of float32; the
    length is a multiple of 16; rows are contiguous."""

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        result_data, size = _data(context, builder, result, arguments[0])
        weight_data, _ = _data(context, builder, weights, arguments[1])
        row_data = _rows(context, builder, values, arguments[3], arguments[4], NUM_VALUES)
        splats = [
            splat(builder, builder.load(builder.gep(weight_data, [at])))
            for at in (builder.add(arguments[2], _SIZE(number)) for number in range(NUM_VALUES))
        ]
        with _vectors(builder, size) as (at, _):
            total = _load(builder, result_data, at)
            for data, weight in zip(row_data, splats, strict=True):
                total = _multiplied(builder, weight, _load(builder, data, at), total)
            builder.store(total, _vector_at(builder, result_data, at, _VECTOR), align=4)
        return context.get_dummy_value()

    return types.void(result, weights, types.int64, values, rows), generate


def _data(context: Any, builder: Any, array_type: Any, array: Any) -> tuple[Any, Any]:
    """Return the address and the length of a contiguous array."""
    made = context.make_array(array_type)(context, builder, array)
    return made.data, builder.extract_value(made.shape, 0)


def _rows(
    context: Any, builder: Any, array_type: Any, array: Any, rows: Any, count: int
) -> Sequence[Any]:
    """Return the addresses of rows of an array of two dimensions."""
    made = context.make_array(array_type)(context, builder, array)
    stride = builder.extract_value(made.strides, 0)
    start = builder.ptrtoint(made.data, _SIZE)
    numbers = _untyped_cgutils.unpack_tuple(builder, rows, count)
    return [
        builder.inttoptr(builder.add(start, builder.mul(number, stride)), made.data.type)
        for number in numbers
    ]


def _vectors(builder: Any, size: Any) -> AbstractContextManager[tuple[Any, Any]]:
    """Return a loop over the first elements of vectors; it also counts them."""
    begin, step = _SIZE(0), _SIZE(LANES)
    loop: Any = _untyped_cgutils.for_range_slice(builder, begin, size, step)
    return cast("AbstractContextManager[tuple[Any, Any]]", loop)


def _vector_at(builder: Any, data: Any, at: Any, vector: Any) -> Any:
    return builder.bitcast(builder.gep(data, [at]), vector.as_pointer())


def _load(builder: Any, data: Any, at: Any) -> Any:
    """Return the vector from element ``at`` on."""
    number = data.type.pointee
    loaded = builder.load(
        _vector_at(builder, data, at, ir.VectorType(number, LANES)),
        align=4 if number == _FLOAT else 2,
    )
    if number == _FLOAT:
        return loaded
    whole = builder.zext(loaded, ir.VectorType(_WORD, LANES))
    return builder.bitcast(builder.shl(whole, _BFLOAT16_SHIFT), _VECTOR)


def _multiplied(builder: Any, one: Any, other: Any, added: Any) -> Any:
    """Return ``one * other + added``, in one step if the processor has one."""
    product = builder.fmul(one, other, flags=("contract",))
    return builder.fadd(product, added, flags=("contract",))


def _sum(builder: Any, vector: Any) -> Any:
    """Return the sum of a vector's elements, taken in any order."""
    kind = ir.FunctionType(_FLOAT, [_FLOAT, _VECTOR])
    name = f"llvm.vector.reduce.fadd.v{LANES}f32"
    added = _untyped_cgutils.get_or_insert_function(builder.module, kind, name)
    return builder.call(added, [_FLOAT(0.0), vector], fastmath=("reassoc",))


def splat(builder: Any, number: Any) -> Any:
    """Return a vector of the same number."""
    single = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), number, _WORD(0))
    places = ir.Constant(ir.VectorType(_WORD, LANES), None)
    return builder.shuffle_vector(single, ir.Constant(_VECTOR, ir.Undefined), places)
