"""Attention to KV in blocks, compiled by numba: nothing is copied, and nothing read twice.

Each thread takes one unit after the other, a sequence with some of its KV heads, until there is
none left. It reads the sequence's keys and values block by block, each once for all query heads
and new tokens, and merges chunks of them by online softmax (Milakov and Gimelshein 2018, as in
FlashAttention). With few new tokens the memory's bandwidth limits this, not arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba.np.numpy_support import carray

from specmesh.decoding.compiled.intrinsics import (
    floats_at,
    int64s_at,
    take_number,
    uint8s_at,
    uint16s_at,
)
from specmesh.decoding.prefix import BLOCK_TOKENS
from specmesh.inference.models.cpu.attention_arithmetic import (
    NONE,
    add_values,
    ask_for,
    highest_of,
    inlined,
    power_of_2,
    score,
    soften,
)

NUM_TAKEN, NUM_UNITS, QUERY, HEAD_STRIDE, TOKEN_STRIDE, KEYS, VALUES, OUT, SCALE = range(9)
"""The fields of the table that each layer sets: the units that threads have taken, and all; the
address of the query ``[heads, tokens, head_dim]`` and its strides in numbers; the addresses of the
layer's keys and values ``[slots, kv_heads, head_dim]`` and of the result ``[tokens, heads,
head_dim]``; and the bits of the scale, a float64."""
BLOCKS, NUM_BLOCKS, LENGTHS, MASK, MASK_LENGTH, WIDTH, SHARED, KV_HEADS, SKIPPED = range(9, 18)
"""Those of a group: the address of its blocks ``[sequences, NUM_BLOCKS]``, of the sequences'
lengths, and of the mask ``[sequences, WIDTH, MASK_LENGTH]``, or 0; the query heads that share a KV
head; and how many first tokens of each sequence nothing attends to."""
NUM_SLOTS, HEAD_DIM, HEAD_PARTS, NUM_FIELDS = 18, 19, 20, 21
"""The slots of a layer; the elements of a head; the parts into which the KV heads of a sequence are
divided, each a unit; and the number of fields."""

_CHUNK_BLOCKS = 64
"""Blocks whose scores are held at a time."""
_LOG2_E = np.float32(math.log2(math.e))


@inlined
def _attended(index: int, first_token: int, end_token: int) -> tuple[int, int]:
    """Return the first and the last token of block ``index`` that the bounds leave, by their
    numbers in the block."""
    last = min(BLOCK_TOKENS, end_token - index * BLOCK_TOKENS) - 1
    return max(0, min(last, first_token - index * BLOCK_TOKENS)), last


@inlined
def _score_chunk(
    queries: Any, keys: Any, values: Any, blocks: Any, bounds: Any, scores: Any
) -> None:
    """Write the scores of ``queries`` ``[heads, rows, head_dim]`` for the blocks of a chunk to
    ``scores`` ``[heads, rows, tokens]``. ``bounds`` are the first and the end of the blocks, those
    of the sequence's tokens that are attended to, and the first head."""
    begin, end, first_token, end_token, first_head = bounds
    for index in range(begin, end):
        if index + 1 < end:
            ask_for(keys, blocks[index + 1])
        else:
            ask_for(values, blocks[begin])
        first, last = _attended(index, first_token, end_token)
        slot, at = blocks[index] * BLOCK_TOKENS, (index - begin) * BLOCK_TOKENS
        for head in range(queries.shape[0]):
            block = keys[slot : slot + BLOCK_TOKENS, first_head + head]
            score(queries[head], block, first, last, scores[head], at)


@inlined
def _add_chunk(
    weights: Any, keys: Any, values: Any, blocks: Any, bounds: Any, results: Any
) -> None:
    """Add the values of the blocks of a chunk, with ``weights``, to ``results`` ``[heads, rows,
    head_dim]``. ``bounds`` are those of ``_score_chunk``."""
    begin, end, first_token, end_token, first_head = bounds
    for index in range(begin, end):
        if index + 1 < end:
            ask_for(values, blocks[index + 1])
        elif end * BLOCK_TOKENS < end_token:
            ask_for(keys, blocks[end])
        first, last = _attended(index, first_token, end_token)
        slot, at = blocks[index] * BLOCK_TOKENS, (index - begin) * BLOCK_TOKENS
        for head in range(results.shape[0]):
            block = values[slot : slot + BLOCK_TOKENS, first_head + head]
            add_values(weights[head], at, block, first, last, results[head])


@inlined
def _hide(scores: Any, attends: Any, past: int, first_token: int, end_token: int) -> None:
    """Hide the tokens of a chunk from token ``past`` on that a row does not attend to, by
    ``attends``, if that is not empty, and by the bounds."""
    for token in range(min(scores.size, first_token - past)):
        scores[token] = NONE
    for token in range(end_token - past, scores.size):
        scores[token] = NONE
    for token in range(min(scores.size, attends.size - past)):
        seen = scores[token]
        scores[token] = seen if attends[past + token] else NONE


@inlined
def _weigh(scores: Any, columns: Any, factor: Any, so_far: Any, result: Any) -> None:
    """Make weights of a row's ``scores``. ``so_far`` are the highest score of the chunks before,
    and the sum of weights relative to it; ``result`` is the sum of values with these."""
    highest = max(so_far[0], highest_of(scores, columns))
    # Where nothing is attended to, all weights are 0, and not the power of infinity less infinity.
    highest = np.float32(0) if highest == NONE else highest
    kept = power_of_2((so_far[0] - highest) * factor)
    so_far[0] = highest
    so_far[1] = so_far[1] * kept + soften(scores, highest, factor)
    for at in range(result.size):
        result[at] *= kept


@inlined
def _weigh_chunk(
    scores: Any, mask: Any, bounds: Any, columns: Any, factor: Any, so_far: Any, results: Any
) -> None:
    """Make weights of the scores of a chunk, with the ``mask`` of the sequence ``[width,
    tokens]``. ``bounds`` are those of ``_score_chunk``."""
    begin, end, first_token, end_token, _ = bounds
    past, count, width = begin * BLOCK_TOKENS, (end - begin) * BLOCK_TOKENS, mask.shape[0]
    for head in range(results.shape[0]):
        for row in range(results.shape[1]):
            seen = scores[head, row, :count]
            _hide(seen, mask[row % width], past, first_token, end_token)
            _weigh(seen, columns, factor, so_far[head, row], results[head, row])


@inlined
def _read(query: Any, head_stride: int, token_stride: int, width: int, queries: Any) -> None:
    """Copy the queries of a unit to ``queries`` ``[heads, rows, head_dim]``."""
    num_heads, num_rows, head_dim = queries.shape
    for head in range(num_heads):
        for row in range(num_rows):
            of_head = (head * (num_rows // width) + row // width) * head_stride
            start = of_head + row % width * token_stride
            queries[head, row] = query[start : start + head_dim]


@inlined
def _write(results: Any, so_far: Any, written: Any) -> None:
    """Write the means of values to ``written`` ``[width, query heads, head_dim]``."""
    width, num_rows = written.shape[0], results.shape[1]
    for head in range(results.shape[0]):
        for row in range(num_rows):
            mean = written[row % width, head * (num_rows // width) + row // width]
            for at in range(mean.size):
                mean[at] = results[head, row, at] / so_far[head, row, 1]


def attend_for(is_bfloat16: bool) -> Callable[[Any], None]:
    """Return the function to compile for KV in bfloat16 or float32. Queries and results are of
    float32."""

    def attend(table: Any) -> None:
        """Compute the units in ``table``, a pointer to int64, that no other thread takes."""
        num_parts, kv_heads, head_dim = table[HEAD_PARTS], table[KV_HEADS], table[HEAD_DIM]
        width, shared, num_sequences = table[WIDTH], table[SHARED], table[NUM_UNITS] // num_parts
        num_rows, num_heads, num_tokens = shared * width, kv_heads * shared, num_sequences * width
        head_stride, token_stride = table[HEAD_STRIDE], table[TOKEN_STRIDE]
        last_query = (num_heads - 1) * head_stride + (num_tokens - 1) * token_stride
        query = carray(floats_at(table[QUERY]), (last_query + head_dim,))
        out = carray(floats_at(table[OUT]), (num_tokens, num_heads, head_dim))
        shape = (table[NUM_SLOTS], kv_heads, head_dim)
        if is_bfloat16:
            keys = carray(uint16s_at(table[KEYS]), shape)
            values = carray(uint16s_at(table[VALUES]), shape)
        else:
            keys = carray(floats_at(table[KEYS]), shape)
            values = carray(floats_at(table[VALUES]), shape)
        blocks = carray(int64s_at(table[BLOCKS]), (num_sequences, table[NUM_BLOCKS]))
        lengths = carray(int64s_at(table[LENGTHS]), (num_sequences,))
        mask_length = table[MASK_LENGTH] if table[MASK] else 0
        mask = carray(uint8s_at(table[MASK]), (num_sequences, width, mask_length))
        factor = np.float32(np.int64(table[SCALE]).view(np.float64)) * _LOG2_E

        most_heads = (kv_heads + num_parts - 1) // num_parts
        all_queries = np.empty((most_heads, num_rows, head_dim), np.float32)
        all_results = np.empty((most_heads, num_rows, head_dim), np.float32)
        scores = np.empty((most_heads, num_rows, _CHUNK_BLOCKS * BLOCK_TOKENS), np.float32)
        so_far = np.empty((most_heads, num_rows, 2), np.float32)
        columns = np.empty(BLOCK_TOKENS, np.float32)
        while True:
            number = take_number(table)
            if number >= table[NUM_UNITS]:
                return
            sequence, part = number // num_parts, number % num_parts
            first_head = kv_heads * part // num_parts
            heads = kv_heads * (part + 1) // num_parts - first_head
            queries, results = all_queries[:heads], all_results[:heads]
            first_query = first_head * shared
            start = first_query * head_stride + sequence * width * token_stride
            _read(query[start:], head_stride, token_stride, width, queries)
            results[:] = 0
            so_far[:, :, 0] = NONE
            so_far[:, :, 1] = 0

            own, length = blocks[sequence], lengths[sequence]
            num_blocks = (length + BLOCK_TOKENS - 1) // BLOCK_TOKENS
            for begin in range(0, num_blocks, _CHUNK_BLOCKS):
                end = min(num_blocks, begin + _CHUNK_BLOCKS)
                bounds = (begin, end, table[SKIPPED], length, first_head)
                _score_chunk(queries, keys, values, own, bounds, scores)
                _weigh_chunk(scores, mask[sequence], bounds, columns, factor, so_far, results)
                _add_chunk(scores, keys, values, own, bounds, results)

            written = out[sequence * width : (sequence + 1) * width, first_query:]
            _write(results, so_far, written)

    return attend
