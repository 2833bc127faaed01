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
    WAITS: tl.constexpr,
):
    """Multiply ``ROWS`` rows of ``weight`` ``[num_rows, num_columns]`` by the vector.

    With ``WAITS`` it is launched while the kernel before it ends (programmatic dependent launch),
    and reads weights until then.
    """
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    row_ptrs = weight_ptr + rows[:, None].to(tl.int64) * num_columns
    exists = (rows < num_rows)[:, None]
    sums = tl.zeros([ROWS, COLUMNS], tl.float32)
    columns = tl.arange(0, COLUMNS)
    weight = tl.load(row_ptrs + columns[None, :], exists & (columns < num_columns)[None, :], 0.0)
    if WAITS:
        tl.extra.cuda.gdc_wait()
    for _ in range(0, num_columns, COLUMNS):
        vector = tl.load(vector_ptr + columns, columns < num_columns, 0.0)
        sums += weight.to(tl.float32) * vector.to(tl.float32)[None, :]
        columns += COLUMNS
        weight = tl.load(
            row_ptrs + columns[None, :], exists & (columns < num_columns)[None, :], 0.0
        )
    tl.store(out_ptr + rows, tl.sum(sums, 1).to(out_ptr.dtype.element_ty), rows < num_rows)
