"""Attention over KV in blocks as one operator, for compiled layers and CUDA graphs."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

_TILE_ROWS = 32
"""The rows of a tile's matrices in a pass of few tokens; others have more, since keys are read once
for each tile."""
_WIDE_TILE_ROWS = 64
_MANY_TOKENS = 64
_PROGRAMS = 512
"""A few for each multiprocessor of a large GPU, so that all of them read."""
_MOST_SPLITS = 16
_KEYS = {2: 64, 4: 32}
"""The most keys that a program reads at once, by the bytes of a number."""
_KEY_BYTES = 1 << 14
"""The most bytes of keys that a program reads at once: small GPUs have 99 KiB of shared memory,
which also holds the queries and the values."""


@dataclass(eq=False)
class Attended:
    """The keys that the tokens of one forward pass attend to, as tensors on the device (see
    ``Layout``), and ``counters`` for the programs that share a tile."""

    spans: Tensor
    bits: Tensor
    tiles: Tensor
    sequences: Tensor
    tables: Tensor
    counters: Tensor


def tile_tokens(num_tokens: int, shared_heads: int) -> int:
    """Return the most tokens of a tile, whose KV heads are each shared by ``shared_heads``."""
    return max(1, _tile_rows(num_tokens, shared_heads) // shared_heads)


def _tile_rows(num_tokens: int, shared_heads: int) -> int:
    """Return the rows of a tile's matrices, a power of two, in a pass of ``num_tokens``."""
    rows = _TILE_ROWS if num_tokens <= _MANY_TOKENS else _WIDE_TILE_ROWS
    return max(rows, 1 << (shared_heads - 1).bit_length())


def _num_splits(num_tokens: int, kv_heads: int) -> int:
    """Return the most programs, a power of two, that share the keys of a tile."""
    wanted = _PROGRAMS // (num_tokens * kv_heads)
    return min(_MOST_SPLITS, 1 << max(0, wanted.bit_length() - 1))


def _keys_at_once(itemsize: int, width: int) -> int:
    """Return the number of keys, each of ``width`` numbers, that a program reads at once."""
    return min(_KEYS[itemsize], max(16, _KEY_BYTES // (itemsize * width)))


@torch.library.custom_op(
    "specmesh::paged_attention", mutates_args=("held", "counters"), device_types="cuda"
)
def paged_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    held: Tensor,
    spans: Tensor,
    bits: Tensor,
    tiles: Tensor,
    sequences: Tensor,
    tables: Tensor,
    counters: Tensor,
    scale: float,
) -> Tensor:
    """Attend with ``query`` ``[1, heads, tokens, head_dim]`` to ``held``, the layer's keys and
    values ``[2, slots, kv_heads, head_dim]``, and to ``key`` and ``value`` ``[1, kv_heads, tokens,
    head_dim]``, which go to their slots of ``held``. Returns ``[1, tokens, heads, head_dim]``."""
    from specmesh.inference.models.cuda import attention_kernel

    query, key, value = (
        each if each.stride(3) == 1 else each.contiguous() for each in (query, key, value)
    )
    _, heads, num_tokens, head_dim = query.shape
    keys, values = held.unbind(0)
    kv_heads = keys.shape[1]
    shared = heads // kv_heads
    splits = _num_splits(num_tokens, kv_heads)
    block_d = max(16, 1 << (head_dim - 1).bit_length())
    partial = query.new_empty((splits, num_tokens, heads, head_dim), dtype=torch.float32)
    sums = query.new_empty((splits, num_tokens, heads, 2), dtype=torch.float32)
    out = query.new_empty((1, num_tokens, heads, head_dim))
    attention_kernel.attend[(len(tiles), kv_heads, splits)](
        *(query, key, value, keys, values),
        *(tiles, sequences, tables, spans, bits),
        *(partial, sums, counters, out),
        scale / math.log(2),
        num_tokens,
        splits,
        *(query.stride(1), query.stride(2)),
        *(key.stride(1), key.stride(2)),
        *(value.stride(1), value.stride(2)),
        KV_HEADS=kv_heads,
        SHARED=shared,
        HEAD_DIM=head_dim,
        WORDS=bits.shape[1],
        BLOCK_M=_tile_rows(num_tokens, shared),
        BLOCK_N=_keys_at_once(query.dtype.itemsize, block_d),
        BLOCK_D=block_d,
        num_warps=4,
        num_stages=3,
    )
    return out


@paged_attention.register_fake
def _(
    query: Tensor,
    key: Tensor,  # noqa: ARG001
    value: Tensor,  # noqa: ARG001
    held: Tensor,  # noqa: ARG001
    spans: Tensor,  # noqa: ARG001
    bits: Tensor,  # noqa: ARG001
    tiles: Tensor,  # noqa: ARG001
    sequences: Tensor,  # noqa: ARG001
    tables: Tensor,  # noqa: ARG001
    counters: Tensor,  # noqa: ARG001
    scale: float,  # noqa: ARG001
) -> Tensor:
    _, heads, num_tokens, head_dim = query.shape
    return query.new_empty((1, num_tokens, heads, head_dim))
