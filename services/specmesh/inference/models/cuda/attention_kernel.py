"""The Triton kernel in which trees of tokens attend over blocks, and leave their keys and values.

A tile is some tokens of one sequence with all query heads that share a KV head, so that keys and
values are read once for all of them: a row of the tile is one such head of one token. Several
programs share the keys of a tile, and the last of them to finish merges what they have found (see
``softmax_kernel``). Triton inlines all functions and takes named tuples apart: both are free.

``tiles`` ``[tiles, 3]`` are a sequence, its first token in the tile and the number of tokens, 0 for
an unused tile. ``sequences`` ``[sequences, 4]`` are the place in ``tables`` of the first block, the
number of keys, the number of new ones at their end, and the first new token. The keys and values of
new tokens are read from ``key`` and ``value``. ``spans`` ``[tokens]`` is the number of leading keys
that a token attends to; ``bits`` ``[tokens, WORDS]`` say which of those after that it attends to as
well. ``counters`` ``[tiles, KV_HEADS]`` are 0 before and after.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import triton
import triton.language as tl

from specmesh.decoding.prefix import BLOCK_TOKENS
from specmesh.inference.models.cuda.softmax_kernel import Dims, Results, Rows, add, finish, no_keys

_BLOCK_TOKENS = tl.constexpr(BLOCK_TOKENS)


class _Held(NamedTuple):
    """A sequence of ``length`` keys, of which the first ``num_held`` are in its blocks, with the
    KV head at which they are read."""

    keys_ptr: Any
    values_ptr: Any
    table_ptr: Any
    length: Any
    num_held: Any
    head: Any
    KV_HEADS: Any
    HEAD_DIM: Any


class _Computed(NamedTuple):
    """Queries, keys or values of new tokens as the layer has computed them."""

    ptr: Any
    head_stride: Any
    token_stride: Any


class _New(NamedTuple):
    """The keys and values of all new tokens, and the first token of the sequence."""

    key: Any
    value: Any
    first: Any


class _Seen(NamedTuple):
    """The keys that all tokens attend to: the span and ``WORDS`` words of bits of each."""

    spans_ptr: Any
    bits_ptr: Any
    WORDS: Any


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
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """Attend with one tile and KV head to one of at most ``num_splits`` ranges of all keys."""
    tile, head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    count = tl.load(tiles_ptr + tile * 3 + 2)
    if count == 0:
        return
    sequence_ptr = sequences_ptr + tl.load(tiles_ptr + tile * 3) * 4
    first = tl.load(tiles_ptr + tile * 3 + 1)
    table_ptr, length, num_held, first_new = _sequence(sequence_ptr, tables_ptr)
    begin, end, num_used = _range(length, split, num_splits, BLOCK_N)
    if begin >= length:
        return
    held = _Held(keys_ptr, values_ptr, table_ptr, length, num_held, head, KV_HEADS, HEAD_DIM)
    key = _Computed(key_ptr, key_head_stride, key_token_stride)
    value = _Computed(value_ptr, value_head_stride, value_token_stride)
    new = _New(key, value, first_new)
    dims = _dims(HEAD_DIM, BLOCK_D)
    numbers = tl.arange(0, BLOCK_M)
    if split == 0:
        _store_new(new, held, first + numbers, numbers < count, dims)
    rows = _rows(numbers, first, count, head, SHARED)
    query = _Computed(query_ptr, query_head_stride, query_token_stride)
    shown = rows.used[:, None] & dims.inside[None, :]
    queries = tl.load(_pointers(query, rows.heads[:, None], rows.tokens, dims), shown, 0.0)
    seen = _Seen(spans_ptr, bits_ptr, WORDS)
    softmax = _over_range(begin, end, queries, scale, rows, seen, held, new, dims, BLOCK_N)
    counter_ptr = counters_ptr + tile * KV_HEADS + head
    results = Results(out_ptr, partial_ptr, sums_ptr, counter_ptr, num_tokens, KV_HEADS * SHARED)
    finish(softmax, results, rows, dims, split, num_used, HEAD_DIM)


@triton.jit
def _sequence(sequence_ptr, tables_ptr):
    """Return a sequence's table, its length, the number of held keys, and its first new token."""
    table_ptr = tables_ptr + tl.load(sequence_ptr)
    length = tl.load(sequence_ptr + 1)
    num_held = length - tl.load(sequence_ptr + 2)
    return table_ptr, length, num_held, tl.load(sequence_ptr + 3)


@triton.jit
def _range(length, split, num_splits, BLOCK_N: tl.constexpr):
    """Return the first key of a program, the end of its keys, and the number of programs
    that have keys."""
    # At least two blocks of keys for each program: starting one takes as long as reading them.
    per_split = tl.maximum(tl.cdiv(tl.cdiv(length, BLOCK_N), num_splits), 2) * BLOCK_N
    num_used = tl.cdiv(length, per_split)
    begin = split * per_split
    return begin, tl.minimum(begin + per_split, length), num_used


@triton.jit
def _dims(HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr):
    """Return the dimensions of a head, padded to ``BLOCK_D``."""
    dims = tl.arange(0, BLOCK_D)
    return Dims(dims, dims < HEAD_DIM)


@triton.jit
def _rows(numbers, first, count, head, SHARED: tl.constexpr):
    """Return the rows of ``count`` tokens from ``first`` on at the heads that share ``head``."""
    used = numbers < count * SHARED
    return Rows(first + numbers // SHARED, head * SHARED + numbers % SHARED, used)


@triton.jit
def _pointers(computed, heads, tokens, dims):
    """Return the places ``[tokens, dims]`` in what the layer has computed, at ``heads``."""
    of_heads = computed.ptr + heads * computed.head_stride
    return of_heads + tokens[:, None] * computed.token_stride + dims.indexes[None, :]


@triton.jit
def _places(held, blocks, indexes, dims):
    """Return the places ``[indexes, dims]`` of the keys at ``indexes`` of the sequence, which
    ``blocks`` hold, and of their values."""
    slots = blocks.to(tl.int64) * _BLOCK_TOKENS + indexes % _BLOCK_TOKENS
    return (slots[:, None] * held.KV_HEADS + held.head) * held.HEAD_DIM + dims.indexes[None, :]


@triton.jit
def _store_new(new, held, tokens, exist, dims):
    """Store the keys and values of the tile's ``tokens`` in the blocks of the sequence."""
    stored = exist[:, None] & dims.inside[None, :]
    key = tl.load(_pointers(new.key, held.head, tokens, dims), stored)
    value = tl.load(_pointers(new.value, held.head, tokens, dims), stored)
    indexes = held.num_held + tokens - new.first
    blocks = tl.load(held.table_ptr + indexes // _BLOCK_TOKENS, exist, 0)
    places = _places(held, blocks, indexes, dims)
    tl.store(held.keys_ptr + places, key, stored)
    tl.store(held.values_ptr + places, value, stored)


@triton.jit
def _over_range(begin, end, queries, scale, rows, seen, held, new, dims, BLOCK_N: tl.constexpr):
    """Return the softmax over the keys from ``begin`` to ``end``."""
    spans = tl.load(seen.spans_ptr + rows.tokens, rows.used, 0)
    shortest = tl.min(tl.where(rows.used, spans, held.length))
    softmax = no_keys(queries.shape[0], queries.shape[1])
    # What is held and seen by all tokens comes first, in blocks that need no mask.
    whole = tl.minimum(end, tl.minimum(held.num_held, shortest) // BLOCK_N * BLOCK_N)
    for start in range(begin, whole, BLOCK_N):
        indexes = start + tl.arange(0, BLOCK_N)
        blocks = tl.load(held.table_ptr + indexes // _BLOCK_TOKENS)
        places = _places(held, blocks, indexes, dims)
        keys = tl.load(held.keys_ptr + places, dims.inside[None, :], 0.0)
        values = tl.load(held.values_ptr + places, dims.inside[None, :], 0.0)
        scores = tl.dot(queries, tl.trans(keys), input_precision="ieee") * scale
        softmax = add(softmax, scores, values)
    for start in range(tl.maximum(begin, whole), end, BLOCK_N):
        indexes = start + tl.arange(0, BLOCK_N)
        exist = indexes < end
        keys, values = _keys_and_values(start, indexes, exist, held, new, dims, BLOCK_N)
        visible = (indexes[None, :] < spans[:, None]) & exist[None, :]
        if start + BLOCK_N > shortest:
            visible |= _has_bit(indexes, exist, rows, spans, seen)
        scores = tl.dot(queries, tl.trans(keys), input_precision="ieee") * scale
        softmax = add(softmax, tl.where(visible, scores, float("-inf")), values)
    return softmax


@triton.jit
def _keys_and_values(start, indexes, exist, held, new, dims, BLOCK_N: tl.constexpr):
    """Return the keys and values at ``indexes`` of the sequence, ``BLOCK_N`` from ``start`` on."""
    is_new = indexes >= held.num_held
    blocks = tl.load(held.table_ptr + indexes // _BLOCK_TOKENS, exist, 0)
    places = _places(held, blocks, indexes, dims)
    is_held = (exist & (indexes < held.num_held))[:, None] & dims.inside[None, :]
    keys = tl.load(held.keys_ptr + places, is_held, 0.0)
    values = tl.load(held.values_ptr + places, is_held, 0.0)
    if start + BLOCK_N > held.num_held:
        # New ones come from the layer: the program that stores them may not have done so yet.
        tokens = new.first + indexes - held.num_held
        taken = (exist & is_new)[:, None] & dims.inside[None, :]
        new_keys = tl.load(_pointers(new.key, held.head, tokens, dims), taken, 0.0)
        new_values = tl.load(_pointers(new.value, held.head, tokens, dims), taken, 0.0)
        keys = tl.where(is_new[:, None], new_keys, keys)
        values = tl.where(is_new[:, None], new_values, values)
    return keys, values


@triton.jit
def _has_bit(indexes, exist, rows, spans, seen):
    """Return which keys after its span each row attends to: ``[rows, indexes]``."""
    after = indexes[None, :] - spans[:, None]
    has_bit = (after >= 0) & (after < seen.WORDS * 32) & rows.used[:, None] & exist[None, :]
    words = tl.load(seen.bits_ptr + rows.tokens[:, None] * seen.WORDS + after // 32, has_bit, 0)
    return has_bit & (((words >> (after % 32)) & 1) != 0)
