"""A product of matrices in float32, compiled by numba: made for few rows and large weights.

Each thread takes one unit after the other, consecutive panels of columns with some rows, until
there is none left. With few rows the memory's bandwidth limits this, not arithmetic: so while tiles
compute with some features of a panel, what comes next is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from specmesh.decoding.compiled.intrinsics import take_number
from specmesh.inference.models.cpu.attention_vectors import LANES
from specmesh.inference.models.cpu.panel_tiles import TilePart, add_tile

NUM_TAKEN, NUM_PANELS, WEIGHTS, NUM_FEATURES, OUTPUT_STRIDE = range(5)
"""The fields of the table that are a layer's: the units that threads have taken; the panels; the
address of the weights ``[panels, features, columns of a panel]``; and the bytes of a row of the
result."""
NUM_UNITS, INPUTS, INPUT_STRIDE, OUTPUTS, NUM_ROWS, NUM_FIELDS = range(5, 11)
"""Those of a product: the units into which the panels are divided; the addresses of ``[rows,
features]`` and of the result, the bytes between two rows of the former, and the rows; and the
number of fields."""

_MOST_FEATURES: Final = 384
"""The features that are multiplied by at a time: their part of a panel stays in a core's cache
until all rows had it."""
_MOST_ROWS: Final = 96
"""The rows of a unit, which stay in the second cache."""
_AHEAD_BYTES: Final = 8192
"""The distance ahead at which the memory is asked, with a single tile."""
_FLOAT_BYTES: Final = 4


def multiply_for(tile_rows: int, tile_vectors: int) -> Callable[[Any], None]:
    """Return the function to compile for tiles of up to so many rows, and panels of so many vectors
    of 16 columns."""
    line_bytes = tile_vectors * LANES * _FLOAT_BYTES
    rows_of_two, rows_of_four = tile_rows // 2, tile_rows // 4

    def multiply(table: Any) -> None:
        """Compute the units in ``table``, a pointer to int64, that no other thread takes."""
        num_features, stride = table[NUM_FEATURES], table[INPUT_STRIDE]
        panel_bytes = num_features * line_bytes
        num_blocks = (num_features + _MOST_FEATURES - 1) // _MOST_FEATURES
        num_parts = (table[NUM_ROWS] + _MOST_ROWS - 1) // _MOST_ROWS
        while True:
            number = take_number(table)
            if number >= table[NUM_UNITS] * num_parts:
                return
            part, unit = number // table[NUM_UNITS], number % table[NUM_UNITS]
            begin = table[NUM_ROWS] * part // num_parts
            rows = table[NUM_ROWS] * (part + 1) // num_parts - begin
            panel = table[NUM_PANELS] * unit // table[NUM_UNITS]
            end = table[NUM_PANELS] * (unit + 1) // table[NUM_UNITS]
            inputs = table[INPUTS] + begin * stride
            outputs = table[OUTPUTS] + begin * table[OUTPUT_STRIDE]

            # The memory delivers several panels sooner than one after the other.
            while rows <= rows_of_two and panel + 2 <= end:
                weights = table[WEIGHTS] + panel * panel_bytes
                whole = TilePart(
                    inputs,
                    stride,
                    weights,
                    panel_bytes,
                    num_features,
                    outputs + panel * line_bytes,
                    table[OUTPUT_STRIDE],
                    rows,
                    True,
                    weights + _AHEAD_BYTES,
                    line_bytes,
                )
                if rows <= rows_of_four and panel + 4 <= end:
                    add_tile(whole, rows_of_four, tile_vectors, 4)
                    panel += 4
                else:
                    add_tile(whole, rows_of_two, tile_vectors, 2)
                    panel += 2

            num_tiles = (rows + tile_rows - 1) // tile_rows
            for place in range(panel * num_blocks, end * num_blocks):
                panel, block = place // num_blocks, place % num_blocks
                feature = num_features * block // num_blocks
                features = num_features * (block + 1) // num_blocks - feature
                weights = table[WEIGHTS] + panel * panel_bytes + feature * line_bytes
                block_bytes = features * line_bytes
                for tile in range(num_tiles):
                    row = rows * tile // num_tiles
                    ahead = block_bytes + block_bytes * tile // num_tiles
                    add_tile(
                        TilePart(
                            inputs + row * stride + feature * _FLOAT_BYTES,
                            stride,
                            weights,
                            panel_bytes,
                            features,
                            outputs + row * table[OUTPUT_STRIDE] + panel * line_bytes,
                            table[OUTPUT_STRIDE],
                            rows * (tile + 1) // num_tiles - row,
                            block == 0,
                            weights + (_AHEAD_BYTES if num_tiles == 1 else ahead),
                            line_bytes // num_tiles,
                        ),
                        tile_rows,
                        tile_vectors,
                        1,
                    )

    return multiply
