"""Triton kernels: keys and values go to their slots, and trees of tokens attend over blocks.

A tile is some tokens of one sequence with all query heads that share a KV head, so that keys and
values are read once for all of them. Several programs share the keys of a tile, each with a softmax
of its own over its range (Dao et al., "Flash-Decoding for long-context inference", 2023); their
results are merged by the logarithms of their sums.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def store_kv(
    key_ptr,
    value_ptr,
    keys_ptr,
    values_ptr,
    slots_ptr,
    key_head_stride,
    key_token_stride,
    value_head_stride,
    value_token_stride,
    HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """Copy the key and the value of one token and KV head to the token's slot, if it has one."""
    token, head = tl.program_id(0), tl.program_id(1)
    slot = tl.load(slots_ptr + token).to(tl.int64)
    if slot < 0:
        return
    dims = tl.arange(0, BLOCK_D)
    inside = dims < HEAD_DIM
    key = tl.load(key_ptr + head * key_head_stride + token * key_token_stride + dims, inside)
    value = tl.load(
        value_ptr + head * value_head_stride + token * value_token_stride + dims, inside
    )
    to = (slot * HEADS + head) * HEAD_DIM + dims
    tl.store(keys_ptr + to, key, inside)
    tl.store(values_ptr + to, value, inside)


@triton.jit
def attend_tile(
    query_ptr,
    keys_ptr,
    values_ptr,
    tiles_ptr,
    tables_ptr,
    starts_ptr,
    lengths_ptr,
    spans_ptr,
    bits_ptr,
    partial_ptr,
    sums_ptr,
    scale,
    query_head_stride,
    query_token_stride,
    num_tokens,
    SPLITS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    SHARED: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    WORDS: tl.constexpr,
    BLOCK_TOKENS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Attend with one tile and KV head to one of ``SPLITS`` ranges of the sequence's keys.

    ``tiles`` ``[tiles, 3]`` are a sequence, its first token of the tile and their number, 0 for an
    unused tile. ``spans`` ``[tokens]`` is the number of leading keys that a token attends to;
    ``bits`` ``[tokens, WORDS]`` say which of those after that it attends to as well.
    """
    tile, head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    count = tl.load(tiles_ptr + tile * 3 + 2)
    if count == 0:
        return
    sequence = tl.load(tiles_ptr + tile * 3)
    first = tl.load(tiles_ptr + tile * 3 + 1)
    length = tl.load(lengths_ptr + sequence)
    table_ptr = tables_ptr + tl.load(starts_ptr + sequence)

    rows = tl.arange(0, BLOCK_M)
    used = rows < count * SHARED
    tokens = first + rows // SHARED
    heads = head * SHARED + rows % SHARED
    out = (split * num_tokens + tokens) * (KV_HEADS * SHARED) + heads

    per_split = tl.cdiv(tl.cdiv(length, BLOCK_N), SPLITS) * BLOCK_N
    begin = split * per_split
    end = tl.minimum(begin + per_split, length)
    if begin >= length:
        tl.store(sums_ptr + out, tl.full([BLOCK_M], float("-inf"), tl.float32), used)
        return

    dims = tl.arange(0, BLOCK_D)
    inside = dims < HEAD_DIM
    at = heads[:, None] * query_head_stride + tokens[:, None] * query_token_stride + dims[None, :]
    query = tl.load(query_ptr + at, used[:, None] & inside[None, :], 0.0)
    spans = tl.load(spans_ptr + tokens, used, 0)
    shortest = tl.min(tl.where(used, spans, length))

    highest = tl.full([BLOCK_M], -1e30, tl.float32)
    sums = tl.zeros([BLOCK_M], tl.float32)
    attended = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    for start in range(begin, end, BLOCK_N):
        indexes = start + tl.arange(0, BLOCK_N)
        exists = indexes < end
        blocks = tl.load(table_ptr + indexes // BLOCK_TOKENS, exists, 0).to(tl.int64)
        slots = blocks * BLOCK_TOKENS + indexes % BLOCK_TOKENS
        at = (slots[:, None] * KV_HEADS + head) * HEAD_DIM + dims[None, :]
        shown = exists[:, None] & inside[None, :]
        keys = tl.load(keys_ptr + at, shown, 0.0)
        scores = tl.dot(query, tl.trans(keys), input_precision=PRECISION) * scale
        visible = (indexes[None, :] < spans[:, None]) & exists[None, :]
        if start + BLOCK_N > shortest:
            after = indexes[None, :] - spans[:, None]
            has_bit = (after >= 0) & (after < WORDS * 32) & used[:, None] & exists[None, :]
            words = tl.load(bits_ptr + tokens[:, None] * WORDS + after // 32, has_bit, 0)
            visible |= has_bit & (((words >> (after % 32)) & 1) != 0)
        scores = tl.where(visible, scores, float("-inf"))
        higher = tl.maximum(highest, tl.max(scores, 1))
        weights = tl.exp2(scores - higher[:, None])
        shrink = tl.exp2(highest - higher)
        sums = sums * shrink + tl.sum(weights, 1)
        values = tl.load(values_ptr + at, shown, 0.0)
        attended = attended * shrink[:, None] + tl.dot(
            weights.to(values.dtype), values, input_precision=PRECISION
        )
        highest = higher

    some = sums > 0
    attended = attended / tl.where(some, sums, 1.0)[:, None]
    logs = tl.where(some, highest + tl.log2(tl.where(some, sums, 1.0)), float("-inf"))
    tl.store(sums_ptr + out, logs, used)
    to = out[:, None].to(tl.int64) * HEAD_DIM + dims[None, :]
    tl.store(partial_ptr + to, attended, used[:, None] & inside[None, :])


@triton.jit
def merge_splits(
    partial_ptr,
    sums_ptr,
    out_ptr,
    num_tokens,
    SPLITS: tl.constexpr,
    HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """Merge the ranges of one token and query head."""
    token, head = tl.program_id(0), tl.program_id(1)
    splits = tl.arange(0, SPLITS)
    rows = (splits * num_tokens + token) * HEADS + head
    logs = tl.load(sums_ptr + rows)
    highest = tl.max(logs, 0)
    weights = tl.where(logs > float("-inf"), tl.exp2(logs - highest), 0.0)
    weights = weights / tl.sum(weights, 0)
    dims = tl.arange(0, BLOCK_D)
    inside = dims < HEAD_DIM
    partial = tl.load(
        partial_ptr + rows[:, None].to(tl.int64) * HEAD_DIM + dims[None, :],
        (weights > 0)[:, None] & inside[None, :],
        0.0,
    )
    merged = tl.sum(partial * weights[:, None], 0)
    to = out_ptr + (token * HEADS + head) * HEAD_DIM + dims
    tl.store(to, merged.to(out_ptr.dtype.element_ty), inside)
