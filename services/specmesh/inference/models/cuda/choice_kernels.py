"""The Triton kernels that find each row's own token: the likeliest, or the winner of its race.

They look up the noise of ``decoding/noise.py``, bit for bit up to the logarithms. Where two scores
are so close that another logarithm, or another order of operations, could decide between them, the
choice is left to the host.
"""

from __future__ import annotations

import triton
import triton.language as tl

from specmesh.inference.models.cuda.wanted import COUPLED, GREEDY

_GREEDY, _COUPLED = tl.constexpr(GREEDY), tl.constexpr(COUPLED)


@triton.jit
def _mixed(z):
    """Return the outputs of SplitMix64 at the states ``z``."""
    z ^= z >> 30
    z *= 0xBF58476D1CE4E5B9
    z ^= z >> 27
    z *= 0x94D049BB133111EB
    return z ^ (z >> 31)


@triton.jit
def _log_uniform(bits):
    """Return the logarithms of the uniform noise in the top 52 ``bits``."""
    return tl.log(((bits >> 12).to(tl.float64) + 0.5) * 2.220446049250313e-16)


@triton.jit
def _gumbel(key, ids):
    """Return the noise of ``ids`` in the stream with that ``key``, as ``noise.gumbel`` does."""
    numbers = ids.to(tl.uint64)
    blocks = ((numbers >> 15) << 9) | (numbers & 511) | (1 << 32)
    block_bits = _mixed(key + (blocks + 1) * 0x9E3779B97F4A7C15)
    least = _log_uniform(block_bits) * (-1 / 64)
    excess = -_log_uniform(_mixed(key + (numbers + 1) * 0x9E3779B97F4A7C15))
    won = (block_bits & 63) == ((numbers >> 9) & 63)
    return -tl.log(least + tl.where(won, 0.0, excess))


@triton.jit
def best_of_part(
    logits_ptr,
    kinds_ptr,
    keys_ptr,
    temperatures_ptr,
    scores_ptr,
    tokens_ptr,
    vocab_size,
    row_stride,
    num_parts,
    PART: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Find the best token of one part of a row, its score, and the next best score.

    ``scores`` is ``[rows, num_parts, 2]``, ``tokens`` ``[rows, num_parts]``; a score of NaN tells
    of a logit that is not a number.
    """
    row, part = tl.program_id(0), tl.program_id(1)
    kind = tl.load(kinds_ptr + row)
    if kind == 0:
        return
    key = tl.load(keys_ptr + row).to(tl.uint64, bitcast=True)
    temperature = tl.load(temperatures_ptr + row)
    best = tl.full([], float("-inf"), tl.float64)
    next_best = tl.full([], float("-inf"), tl.float64)
    token = tl.full([], 0, tl.int32)
    is_bad = tl.full([], 0, tl.int32)
    for start in range(0, PART, BLOCK):
        ids = part * PART + start + tl.arange(0, BLOCK)
        exists = ids < vocab_size
        logits = tl.load(
            logits_ptr + row.to(tl.int64) * row_stride + ids, exists, float("-inf")
        ).to(tl.float32)
        is_bad |= tl.max((logits != logits).to(tl.int32), 0)
        scores = logits.to(tl.float64)
        if kind == _COUPLED:
            scores = scores / temperature + _gumbel(key, ids)
        highest = tl.max(scores, 0)
        first = tl.min(tl.where(scores == highest, ids, vocab_size), 0)
        other = tl.max(tl.where(ids == first, float("-inf"), scores), 0)
        next_best = tl.maximum(next_best, tl.minimum(best, highest))
        next_best = tl.maximum(next_best, other)
        token = tl.where(highest > best, first, token)
        best = tl.maximum(best, highest)
    best = tl.where(is_bad > 0, float("nan"), best)
    at = row * num_parts + part
    tl.store(scores_ptr + at * 2, best)
    tl.store(scores_ptr + at * 2 + 1, next_best)
    tl.store(tokens_ptr + at, token)


@triton.jit
def best_of_row(
    kinds_ptr,
    scores_ptr,
    tokens_ptr,
    out_ptr,
    num_parts,
    PARTS: tl.constexpr,
    SLACK: tl.constexpr,
):
    """Write the best token of a row to ``out`` ``[rows]``, or -1 where the host must decide."""
    row = tl.program_id(0)
    kind = tl.load(kinds_ptr + row)
    parts = tl.arange(0, PARTS)
    exists = (parts < num_parts) & (kind != 0)
    at = row * num_parts + parts
    scores = tl.load(scores_ptr + at * 2, exists, float("-inf"))
    others = tl.load(scores_ptr + at * 2 + 1, exists, float("-inf"))
    tokens = tl.load(tokens_ptr + at, exists, 0)
    is_bad = tl.max((scores != scores).to(tl.int32), 0) > 0
    highest = tl.max(scores, 0)
    winner = tl.min(tl.where(scores == highest, parts, PARTS), 0)
    token = tl.sum(tl.where(parts == winner, tokens, 0), 0)
    next_best = tl.max(tl.maximum(others, tl.where(parts == winner, float("-inf"), scores)), 0)
    is_sure = (kind == _GREEDY) | (highest - next_best > SLACK * (1 + tl.abs(highest)))
    is_finite = tl.abs(highest) < float("inf")
    is_sure = is_sure & is_finite & (is_bad == 0) & (kind != 0)
    tl.store(out_ptr + row, tl.where(is_sure, token, -1))
