"""Attention over KV in blocks as one operator, which compiled layers call and CUDA graphs record."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from specmesh.decoding.prefix import BLOCK_TOKENS

_TILE_ROWS = 32
"""The rows of a tile's matrices in a pass of few tokens; others have more, since keys are read once
for each tile."""
_WIDE_TILE_ROWS = 64
_MANY_TOKENS = 64
_PROGRAMS = 512
"""A few for each multiprocessor of a large GPU, so that all of them read."""
_MOST_SPLITS = 16


@dataclass(eq=False)
class Attended:
    """What the tokens of one forward pass attend to, as tensors on the device (see ``Layout``)."""

    slots: Tensor
    spans: Tensor
    bits: Tensor
    tiles: Tensor
    lengths: Tensor
    starts: Tensor
    tables: Tensor


def tile_tokens(num_tokens: int, shared_heads: int) -> int:
    """Return the most tokens of a tile, whose KV heads are each shared by ``shared_heads``."""
    return max(1, tile_rows(num_tokens, shared_heads) // shared_heads)


def tile_rows(num_tokens: int, shared_heads: int) -> int:
    """Return the rows of a tile's matrices, a power of two, in a pass of ``num_tokens``."""
    rows = _TILE_ROWS if num_tokens <= _MANY_TOKENS else _WIDE_TILE_ROWS
    return max(rows, 1 << (shared_heads - 1).bit_length())


def num_splits(num_tokens: int, kv_heads: int) -> int:
    """Return the number of programs, a power of two, that share the keys of a tile."""
    wanted = _PROGRAMS // (num_tokens * kv_heads)
    return min(_MOST_SPLITS, 1 << max(0, wanted.bit_length() - 1))


@torch.library.custom_op("specmesh::paged_attention", mutates_args=("held",), device_types="cuda")
def paged_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    held: Tensor,
    slots: Tensor,
    spans: Tensor,
    bits: Tensor,
    tiles: Tensor,
    lengths: Tensor,
    starts: Tensor,
    tables: Tensor,
    scale: float,
) -> Tensor:
    """Store ``key`` and ``value`` ``[1, kv_heads, tokens, head_dim]`` in ``held``, the layer's keys
    and values ``[2, slots, kv_heads, head_dim]``, then let ``query`` ``[1, heads, tokens, head_dim]`` attend;
    returns ``[1, tokens, heads, head_dim]``."""
    from specmesh.inference.models.cuda import kernels

    _, heads, num_tokens, head_dim = query.shape
    keys, values = held.unbind(0)
    kv_heads = keys.shape[1]
    shared = heads // kv_heads
    splits = num_splits(num_tokens, kv_heads)
    block_d = max(16, 1 << (head_dim - 1).bit_length())
    kernels.store_kv[(num_tokens, kv_heads)](
        key,
        value,
        keys,
        values,
        slots,
        key.stride(1),
        key.stride(2),
        value.stride(1),
        value.stride(2),
        HEADS=kv_heads,
        HEAD_DIM=head_dim,
        BLOCK_D=block_d,
        num_warps=1,
    )
    partial = query.new_empty((splits, num_tokens, heads, head_dim), dtype=torch.float32)
    sums = query.new_empty((splits, num_tokens, heads), dtype=torch.float32)
    kernels.attend_tile[(len(tiles), kv_heads, splits)](
        query,
        keys,
        values,
        tiles,
        tables,
        starts,
        lengths,
        spans,
        bits,
        partial,
        sums,
        scale / math.log(2),
        query.stride(1),
        query.stride(2),
        num_tokens,
        SPLITS=splits,
        KV_HEADS=kv_heads,
        SHARED=shared,
        HEAD_DIM=head_dim,
        WORDS=bits.shape[1],
        BLOCK_TOKENS=BLOCK_TOKENS,
        BLOCK_M=tile_rows(num_tokens, shared),
        BLOCK_N=64 if query.dtype.itemsize == 2 else 32,
        BLOCK_D=block_d,
        PRECISION="ieee",
        num_warps=4,
        num_stages=2,
    )
    out = query.new_empty((1, num_tokens, heads, head_dim))
    kernels.merge_splits[(num_tokens, heads)](
        partial,
        sums,
        out,
        num_tokens,
        SPLITS=splits,
        HEADS=heads,
        HEAD_DIM=head_dim,
        BLOCK_D=block_d,
        num_warps=1,
    )
    return out


@paged_attention.register_fake
def _(query: Tensor, *_: Any, **__: Any) -> Tensor:
    _, heads, num_tokens, head_dim = query.shape
    return query.new_empty((1, num_tokens, heads, head_dim))
