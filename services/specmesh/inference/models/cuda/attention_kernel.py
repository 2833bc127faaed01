"""The Triton kernel in which trees of tokens attend over blocks, and leave their keys and values.

A tile is some tokens of one sequence with all query heads that share a KV head, so that keys and
values are read once for all of them. Several programs share the keys of a tile, each with a softmax
of its own over its range (Dao et al., "Flash-Decoding for long-context inference", 2023). The last
of them to end merges all by the logarithms of their sums.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _add(scores, values, highest, sums, attended):
    """Add keys with ``scores`` and their ``values`` to the softmax so far: the highest score, the
    sum of weights relative to it, and the weighted sum of values (Milakov and Gimelshein 2018)."""
    higher = tl.maximum(highest, tl.max(scores, 1))
    weights = tl.exp2(scores - higher[:, None])
    shrink = tl.exp2(highest - higher)
    sums = sums * shrink + tl.sum(weights, 1)
    attended = attended * shrink[:, None] + tl.dot(
        weights.to(values.dtype), values, input_precision="ieee"
    )
    return higher, sums, attended


@triton.jit(do_not_specialize=["num_tokens", "num_splits"])
def attend(
    query_ptr,
    key_ptr,
    value_ptr,
    keys_ptr,
    values_ptr,
    tiles_ptr,
    sequences_ptr,
    tables_ptr,
    spans_ptr,
    bits_ptr,
    partial_ptr,
    sums_ptr,
    counters_ptr,
    out_ptr,
    scale,
    num_tokens,
    num_splits,
    query_head_stride,
    query_token_stride,
    key_head_stride,
    key_token_stride,
    value_head_stride,
    value_token_stride,
    KV_HEADS: tl.constexpr,
    SHARED: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    WORDS: tl.constexpr,
    BLOCK_TOKENS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """Attend with one tile and KV head to one of at most ``num_splits`` ranges of all keys.

    ``tiles`` ``[tiles, 3]`` are a sequence, its first token in the tile and the number of tokens, 0
    for an unused tile. ``sequences`` ``[sequences, 4]`` are the place in ``tables`` of the first
    block, the number of keys, the number of new ones at their end, and the first new token. The
    keys and values of new tokens are read from ``key`` and ``value``. ``spans`` ``[tokens]`` is the
    number of leading keys that a token attends to; ``bits`` ``[tokens, WORDS]`` say which of those
    after that it attends to as well. ``counters`` ``[tiles, KV_HEADS]`` are 0 before and after.
    """
    tile, head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    count = tl.load(tiles_ptr + tile * 3 + 2)
    if count == 0:
        return
    sequence_ptr = sequences_ptr + tl.load(tiles_ptr + tile * 3) * 4
    first = tl.load(tiles_ptr + tile * 3 + 1)
    table_ptr = tables_ptr + tl.load(sequence_ptr)
    length = tl.load(sequence_ptr + 1)
    num_held = length - tl.load(sequence_ptr + 2)
    first_new = tl.load(sequence_ptr + 3)

    # At least two blocks of keys for each program: starting one takes as long as reading them.
    per_split = tl.maximum(tl.cdiv(tl.cdiv(length, BLOCK_N), num_splits), 2) * BLOCK_N
    num_used = tl.cdiv(length, per_split)
    begin = split * per_split
    end = tl.minimum(begin + per_split, length)
    if begin >= length:
        return

    dims = tl.arange(0, BLOCK_D)
    inside = dims < HEAD_DIM
    rows = tl.arange(0, BLOCK_M)
    if split == 0:
        own = first + rows
        is_own = (rows < count)[:, None] & inside[None, :]
        own_key = tl.load(
            key_ptr + head * key_head_stride + own[:, None] * key_token_stride + dims[None, :],
            is_own,
        )
        own_value = tl.load(
            value_ptr
            + head * value_head_stride
            + own[:, None] * value_token_stride
            + dims[None, :],
            is_own,
        )
        index = num_held + own - first_new
        block = tl.load(table_ptr + index // BLOCK_TOKENS, rows < count, 0).to(tl.int64)
        slot = block * BLOCK_TOKENS + index % BLOCK_TOKENS
        to = (slot[:, None] * KV_HEADS + head) * HEAD_DIM + dims[None, :]
        tl.store(keys_ptr + to, own_key, is_own)
        tl.store(values_ptr + to, own_value, is_own)

    used = rows < count * SHARED
    tokens = first + rows // SHARED
    heads = head * SHARED + rows % SHARED
    shown = used[:, None] & inside[None, :]
    query = tl.load(
        query_ptr
        + heads[:, None] * query_head_stride
        + tokens[:, None] * query_token_stride
        + dims[None, :],
        shown,
        0.0,
    )
    spans = tl.load(spans_ptr + tokens, used, 0)
    shortest = tl.min(tl.where(used, spans, length))

    highest = tl.full([BLOCK_M], -1e30, tl.float32)
    sums = tl.zeros([BLOCK_M], tl.float32)
    attended = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    # What is held and seen by all tokens comes first, in blocks that need no mask.
    whole = tl.minimum(end, tl.minimum(num_held, shortest) // BLOCK_N * BLOCK_N)
    for start in range(begin, whole, BLOCK_N):
        indexes = start + tl.arange(0, BLOCK_N)
        blocks = tl.load(table_ptr + indexes // BLOCK_TOKENS).to(tl.int64)
        slots = blocks * BLOCK_TOKENS + indexes % BLOCK_TOKENS
        places = (slots[:, None] * KV_HEADS + head) * HEAD_DIM + dims[None, :]
        keys = tl.load(keys_ptr + places, inside[None, :], 0.0)
        values = tl.load(values_ptr + places, inside[None, :], 0.0)
        scores = tl.dot(query, tl.trans(keys), input_precision="ieee") * scale
        highest, sums, attended = _add(scores, values, highest, sums, attended)

    for start in range(tl.maximum(begin, whole), end, BLOCK_N):
        indexes = start + tl.arange(0, BLOCK_N)
        exists = indexes < end
        is_new = indexes >= num_held
        blocks = tl.load(table_ptr + indexes // BLOCK_TOKENS, exists, 0).to(tl.int64)
        slots = blocks * BLOCK_TOKENS + indexes % BLOCK_TOKENS
        places = (slots[:, None] * KV_HEADS + head) * HEAD_DIM + dims[None, :]
        is_held = (exists & (indexes < num_held))[:, None] & inside[None, :]
        keys = tl.load(keys_ptr + places, is_held, 0.0)
        values = tl.load(values_ptr + places, is_held, 0.0)
        if start + BLOCK_N > num_held:
            new = first_new + indexes - num_held
            takes = (exists & is_new)[:, None] & inside[None, :]
            new_keys = tl.load(
                key_ptr + head * key_head_stride + new[:, None] * key_token_stride + dims[None, :],
                takes,
                0.0,
            )
            new_values = tl.load(
                value_ptr
                + head * value_head_stride
                + new[:, None] * value_token_stride
                + dims[None, :],
                takes,
                0.0,
            )
            keys = tl.where(is_new[:, None], new_keys, keys)
            values = tl.where(is_new[:, None], new_values, values)
        visible = (indexes[None, :] < spans[:, None]) & exists[None, :]
        if start + BLOCK_N > shortest:
            after = indexes[None, :] - spans[:, None]
            has_bit = (after >= 0) & (after < WORDS * 32) & used[:, None] & exists[None, :]
            words = tl.load(bits_ptr + tokens[:, None] * WORDS + after // 32, has_bit, 0)
            visible |= has_bit & (((words >> (after % 32)) & 1) != 0)
        scores = tl.dot(query, tl.trans(keys), input_precision="ieee") * scale
        scores = tl.where(visible, scores, float("-inf"))
        highest, sums, attended = _add(scores, values, highest, sums, attended)

    out = (tokens * (KV_HEADS * SHARED) + heads)[:, None].to(tl.int64) * HEAD_DIM + dims[None, :]
    if num_used > 1:
        number = tokens * (KV_HEADS * SHARED) + heads
        stride = num_tokens * (KV_HEADS * SHARED)
        tl.store(sums_ptr + (split * stride + number) * 2, highest, used)
        tl.store(sums_ptr + (split * stride + number) * 2 + 1, sums, used)
        tl.store(partial_ptr + split * stride * HEAD_DIM + out, attended, shown)
        counter = counters_ptr + tile * KV_HEADS + head
        tl.debug_barrier()  # what all threads have stored comes before the arrival
        arrived = tl.atomic_add(counter, 1, sem="acq_rel")
        if arrived == num_used - 1:
            tl.debug_barrier()
            tl.store(counter, 0)
            highest = tl.full([BLOCK_M], -1e30, tl.float32)
            sums = tl.zeros([BLOCK_M], tl.float32)
            attended = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
            for other in range(0, num_used):
                at = (other * stride + number) * 2
                other_highest = tl.load(sums_ptr + at, used, -1e30, cache_modifier=".cg")
                other_sums = tl.load(sums_ptr + at + 1, used, 0.0, cache_modifier=".cg")
                others = tl.load(
                    partial_ptr + other * stride * HEAD_DIM + out,
                    shown,
                    0.0,
                    cache_modifier=".cg",
                )
                higher = tl.maximum(highest, other_highest)
                shrink = tl.exp2(highest - higher)
                other_shrink = tl.exp2(other_highest - higher)
                sums = sums * shrink + other_sums * other_shrink
                attended = attended * shrink[:, None] + others * other_shrink[:, None]
                highest = higher
            attended = attended / sums[:, None]
            tl.store(out_ptr + out, attended.to(out_ptr.dtype.element_ty), shown)
    else:
        attended = attended / sums[:, None]
        tl.store(out_ptr + out, attended.to(out_ptr.dtype.element_ty), shown)
