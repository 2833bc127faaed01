"""The innermost loop of a product of matrices, in LLVM's own words: a tile stays in registers.

A tile is a few rows of the result with a panel of its columns. For each feature its sums are
multiplied and added to at once, so that the weight is read once for all rows of the tile (the
micro-kernel of Goto and van de Geijn 2008). Each sum is taken feature by feature, whatever the
number of rows: a row's result does not depend on the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from llvmlite import ir
from numba import extending
from numba.core import cgutils, types

from specmesh.decoding.compiled.intrinsics import ask_for
from specmesh.inference.models.cpu.attention_vectors import LANES, splat

_LINE_BYTES: Final = 64
_FLOAT_BYTES: Final = 4

_FLOAT, _SIZE = ir.FloatType(), ir.IntType(64)
_VECTOR = ir.VectorType(_FLOAT, LANES)
_untyped_cgutils: Any = cgutils
_literal_intrinsic: Callable[[Callable[..., Any]], Callable[..., Any]] = extending.intrinsic(
    prefer_literal=True
)


class TilePart(NamedTuple):
    """Some rows and features of a product, for one panel or consecutive ones: addresses, and
    strides in bytes."""

    inputs: int
    input_stride: int
    weights: int
    panel_bytes: int
    """The bytes between the weights of two panels."""
    num_features: int
    outputs: int
    output_stride: int
    num_rows: int
    is_first: bool
    """True if the outputs are to be begun with these features, and not to be added to."""
    wanted: int
    """The part of the weights that is to come from memory meanwhile, from here on."""
    wanted_stride: int
    """The bytes of that for each feature."""


@_literal_intrinsic
def add_tile(
    _typing: Any, part: Any, rows: Any, vectors: Any, panels: Any
) -> tuple[Any, Any] | None:
    """Compute a ``TilePart`` of up to ``rows`` rows and so many ``panels`` of ``vectors`` each:
    three constants. Weights are ``[panels, features, columns]``."""
    if not all(isinstance(each, types.IntegerLiteral) for each in (rows, vectors, panels)):
        return None
    width = vectors.literal_value, panels.literal_value

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        values = _untyped_cgutils.unpack_tuple(builder, arguments[0], len(TilePart._fields))
        end = builder.append_basic_block("end")
        choice = builder.switch(values[TilePart._fields.index("num_rows")], end)
        for count in range(1, rows.literal_value + 1):
            block = builder.append_basic_block(f"rows{count}")
            choice.add_case(_SIZE(count), block)
            builder.position_at_end(block)
            _Tile(builder, values, count, *width).compute()
            builder.branch(end)
        builder.position_at_end(end)
        return _context.get_dummy_value()

    return types.void(part, rows, vectors, panels), generate


class _Tile:
    """Writes the code for a tile of ``num_rows``."""

    def __init__(
        self,
        builder: Any,
        values: Sequence[Any],
        num_rows: int,
        num_vectors: int,
        num_panels: int,
    ) -> None:
        self._builder = builder
        self._part = TilePart(*values)
        self._num_vectors, self._num_panels = num_vectors, num_panels
        self._sums = [
            [
                _untyped_cgutils.alloca_once(builder, _VECTOR)
                for _ in range(num_vectors * num_panels)
            ]
            for _ in range(num_rows)
        ]

    def compute(self) -> None:
        builder, part = self._builder, self._part
        inputs = self._rows(part.inputs, part.input_stride)
        outputs = self._rows(part.outputs, part.output_stride)
        with builder.if_else(builder.trunc(part.is_first, ir.IntType(1))) as (begin, go_on):
            with begin:
                for each in self._each_sum():
                    builder.store(ir.Constant(_VECTOR, None), each)
            with go_on:
                self._move(outputs, is_read=True)
        zero, one = _SIZE(0), _SIZE(1)
        loop = _untyped_cgutils.for_range_slice(builder, zero, part.num_features, one)
        with loop as (feature, _):
            self._ask_for(feature)
            self._add_feature(feature, inputs)
        self._move(outputs, is_read=False)

    def _add_feature(self, feature: Any, inputs: Sequence[Any]) -> None:
        """Add the products with one feature. The fewer of weights and inputs are kept in registers,
        of which there are too few for both."""
        if len(inputs) > self._num_vectors * self._num_panels:
            weights = list(self._weights(feature))
            for row, sums in zip(inputs, self._sums, strict=True):
                factor = self._input(row, feature)
                for weight, each in zip(weights, sums, strict=True):
                    self._add(factor, weight, each)
        else:
            factors = [self._input(row, feature) for row in inputs]
            for column, weight in enumerate(self._weights(feature)):
                for factor, sums in zip(factors, self._sums, strict=True):
                    self._add(factor, weight, sums[column])

    def _weights(self, feature: Any) -> Iterator[Any]:
        """Load the weights of ``feature``, vector by vector."""
        builder, part = self._builder, self._part
        first = builder.mul(feature, _SIZE(self._num_vectors * LANES))
        for panel in range(self._num_panels):
            address = builder.add(part.weights, builder.mul(part.panel_bytes, _SIZE(panel)))
            weights = builder.gep(_pointer(builder, address, _FLOAT), [first])
            for number in range(self._num_vectors):
                yield builder.load(self._vector(weights, number), align=4)

    def _input(self, row: Any, feature: Any) -> Any:
        builder = self._builder
        return splat(builder, builder.load(builder.gep(row, [feature])))

    def _add(self, factor: Any, weight: Any, total: Any) -> None:
        builder = self._builder
        builder.store(_fused(builder, factor, weight, builder.load(total)), total)

    def _ask_for(self, feature: Any) -> None:
        builder, part = self._builder, self._part
        first = builder.add(part.wanted, builder.mul(feature, part.wanted_stride))
        for panel in range(self._num_panels):
            start = builder.add(first, builder.mul(part.panel_bytes, _SIZE(panel)))
            for at in range(0, self._num_vectors * LANES * _FLOAT_BYTES, _LINE_BYTES):
                ask_for(builder, _pointer(builder, builder.add(start, _SIZE(at)), _FLOAT))

    def _move(self, outputs: Sequence[Any], *, is_read: bool) -> None:
        for row, sums in zip(outputs, self._sums, strict=True):
            for number, each in enumerate(sums):
                place = self._vector(row, number)
                source, target = (place, each) if is_read else (each, place)
                self._builder.store(self._builder.load(source, align=4), target, align=4)

    def _rows(self, address: Any, stride: Any) -> list[Any]:
        builder = self._builder
        return [
            _pointer(builder, builder.add(address, builder.mul(stride, _SIZE(number))), _FLOAT)
            for number in range(len(self._sums))
        ]

    def _each_sum(self) -> list[Any]:
        return [each for sums in self._sums for each in sums]

    def _vector(self, row: Any, number: int) -> Any:
        builder = self._builder
        first = builder.gep(row, [_SIZE(number * LANES)])
        return builder.bitcast(first, _VECTOR.as_pointer())


def _pointer(builder: Any, address: Any, kind: Any) -> Any:
    return builder.inttoptr(address, kind.as_pointer())


def _fused(builder: Any, one: Any, other: Any, added: Any) -> Any:
    """Return ``one * other + added``, rounded once."""
    kind = ir.FunctionType(_VECTOR, [_VECTOR, _VECTOR, _VECTOR])
    name = f"llvm.fma.v{LANES}f32"
    fused = _untyped_cgutils.get_or_insert_function(builder.module, kind, name)
    return builder.call(fused, [one, other, added])
