"""The softmax over a range of keys in Triton, and how programs merge those of several ranges.

Each program has a softmax of its own over its range (Dao et al., "Flash-Decoding for long-context
inference", 2023). The last of them to finish merges all by their highest scores
and sums of weights.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import triton
import triton.language as tl


class Rows(NamedTuple):
    """The rows of a tile: their tokens and query heads, and which of them are used."""

    tokens: Any
    heads: Any
    used: Any


class Dims(NamedTuple):
    """The dimensions of a head, padded to a power of two, and which of them are inside."""

    indexes: Any
    inside: Any


class Softmax(NamedTuple):
    """A softmax over some keys, for each row: the highest score, as a logarithm to base 2, the sum
    of weights relative to it, and the weighted sum of values ``[rows, dims]``."""

    highest: Any
    sums: Any
    attended: Any


class Results(NamedTuple):
    """The places of results: ``out`` ``[num_tokens, num_heads, head_dim]``; those of each range to
    ``partial`` ``[ranges, num_tokens, num_heads, head_dim]`` and ``sums`` ``[ranges, num_tokens,
    num_heads, 2]``. ``counter`` is how many ranges of the tile are there."""

    out_ptr: Any
    partial_ptr: Any
    sums_ptr: Any
    counter_ptr: Any
    num_tokens: Any
    num_heads: Any


@triton.jit
def no_keys(ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """Return the softmax over no keys, for ``ROWS`` rows of ``WIDTH`` dimensions."""
    highest = tl.full([ROWS], -1e30, tl.float32)  # not -inf, since -inf - -inf is NaN
    sums = tl.zeros([ROWS], tl.float32)
    return Softmax(highest, sums, tl.zeros([ROWS, WIDTH], tl.float32))


@triton.jit
def add(softmax, scores, values):
    """Add keys with ``scores`` and their ``values`` (Milakov and Gimelshein 2018)."""
    highest = tl.maximum(softmax.highest, tl.max(scores, 1))
    weights = tl.exp2(scores - highest[:, None])
    shrink = tl.exp2(softmax.highest - highest)
    sums = softmax.sums * shrink + tl.sum(weights, 1)
    attended = softmax.attended * shrink[:, None] + tl.dot(
        weights.to(values.dtype), values, input_precision="ieee"
    )
    return Softmax(highest, sums, attended)


@triton.jit
def finish(softmax, results, rows, dims, split, num_used, HEAD_DIM: tl.constexpr):
    """Write the results, if this is the only program of its tile, or the last of ``num_used`` to
    finish; else leave the softmax of range ``split`` to that one."""
    numbers = rows.tokens * results.num_heads + rows.heads
    places = numbers[:, None].to(tl.int64) * HEAD_DIM + dims.indexes[None, :]
    shown = rows.used[:, None] & dims.inside[None, :]
    if num_used > 1:
        stride = results.num_tokens * results.num_heads
        sums_ptr = results.sums_ptr + (split * stride + numbers) * 2
        tl.store(sums_ptr, softmax.highest, rows.used)
        tl.store(sums_ptr + 1, softmax.sums, rows.used)
        tl.store(results.partial_ptr + split * stride * HEAD_DIM + places, softmax.attended, shown)
        tl.debug_barrier()  # what all threads have stored comes before the arrival
        arrived = tl.atomic_add(results.counter_ptr, 1, sem="acq_rel")
        if arrived == num_used - 1:
            tl.debug_barrier()  # and the arrival before what any thread loads
            tl.store(results.counter_ptr, 0)
            softmax = no_keys(shown.shape[0], shown.shape[1])
            for other in range(0, num_used):
                sums_ptr = results.sums_ptr + (other * stride + numbers) * 2
                partial_ptr = results.partial_ptr + other * stride * HEAD_DIM
                softmax = _merge(softmax, sums_ptr, partial_ptr, places, rows.used, shown)
            _write(softmax, results.out_ptr, places, shown)
    else:
        _write(softmax, results.out_ptr, places, shown)


@triton.jit
def _merge(softmax, sums_ptr, partial_ptr, places, used, shown):
    """Merge the softmax that another program has left; the L1 cache may not know of it yet."""
    other_highest = tl.load(sums_ptr, used, -1e30, cache_modifier=".cg")
    other_sums = tl.load(sums_ptr + 1, used, 0.0, cache_modifier=".cg")
    others = tl.load(partial_ptr + places, shown, 0.0, cache_modifier=".cg")
    highest = tl.maximum(softmax.highest, other_highest)
    shrink = tl.exp2(softmax.highest - highest)
    other_shrink = tl.exp2(other_highest - highest)
    sums = softmax.sums * shrink + other_sums * other_shrink
    attended = softmax.attended * shrink[:, None] + others * other_shrink[:, None]
    return Softmax(highest, sums, attended)


@triton.jit
def _write(softmax, out_ptr, places, shown):
    """Write the means of the values by their weights."""
    attended = softmax.attended / softmax.sums[:, None]
    tl.store(out_ptr + places, attended.to(out_ptr.dtype.element_ty), shown)
