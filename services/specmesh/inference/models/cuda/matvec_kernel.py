"""The Triton kernel of the product of a weight and one vector."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def multiply(
    weight_ptr,
    vector_ptr,
    out_ptr,
    num_rows,
    num_columns,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Multiply ``ROWS`` rows of ``weight`` ``[num_rows, num_columns]`` by the vector."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    sums = tl.zeros([ROWS, COLUMNS], tl.float32)
    for start in range(0, num_columns, COLUMNS):
        columns = start + tl.arange(0, COLUMNS)
        inside = columns < num_columns
        vector = tl.load(vector_ptr + columns, inside, 0.0).to(tl.float32)
        weight = tl.load(
            weight_ptr + rows[:, None].to(tl.int64) * num_columns + columns[None, :],
            (rows < num_rows)[:, None] & inside[None, :],
            0.0,
        )
        sums += weight.to(tl.float32) * vector[None, :]
    tl.store(out_ptr + rows, tl.sum(sums, 1).to(out_ptr.dtype.element_ty), rows < num_rows)
