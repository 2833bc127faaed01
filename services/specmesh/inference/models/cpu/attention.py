"""Attention of groups with few new tokens by compiled code, which reads KV where it lies."""

from __future__ import annotations

import ctypes
import struct
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specmesh.decoding import prefix
from specmesh.decoding.compiled import compilation, intrinsics
from specmesh.inference.engine.batch import Group
from specmesh.inference.engine.kv_store import KVShape, KVStore
from specmesh.inference.models.cpu import attention_arithmetic as arithmetic
from specmesh.inference.models.cpu import attention_kernel as kernel
from specmesh.inference.models.cpu import attention_vectors as vectors
from specmesh.inference.models.cpu.team_code import TeamCode, compiled_for_team

_MOST_ROWS = 24
"""Up to so many queries to a KV head, compiled code is faster than a product of matrices."""
_TYPES = frozenset({torch.float32, torch.bfloat16})
"""The types of KV that there is code for."""
_Table = ctypes.c_int64 * kernel.NUM_FIELDS


def prepare(shape: KVShape, device: torch.device) -> None:
    """Compile the code for KV of this ``shape`` on ``device`` if there is any, so that no forward
    waits for that: it takes five seconds where no earlier process has left it on the disk."""
    if _has_code(shape.head_dim, shape.dtype, device):
        _code(shape.dtype)


def is_compiled(store: KVStore, group: Group, heads: int) -> bool:
    """Return whether compiled code is the fastest way to attend with ``heads`` query heads."""
    _, _, kv_heads, head_dim = store.kv.shape
    if not _has_code(head_dim, store.kv.dtype, store.kv.device) or heads % kv_heads:
        return False
    return heads // kv_heads * group.width <= _MOST_ROWS


class CompiledAttention:
    """Attention of the sequences of one group that ``is_compiled``; nothing attends to the first
    ``skipped`` tokens of a sequence."""

    def __init__(self, store: KVStore, group: Group, heads: int, skipped: int) -> None:
        num_sequences, num_blocks = group.blocks.shape
        _, num_slots, kv_heads, self._head_dim = store.kv.shape
        self.tokens = slice(group.start, group.start + num_sequences * group.width)
        self._heads, self._dtype = heads, store.kv.dtype
        code = _code(self._dtype)
        self._run = code.team.find
        self._layer_bytes = store.kv[0].numel() * store.kv.itemsize
        self._kv_address = store.kv.data_ptr()
        mask = group.attention_mask
        # The table has the addresses of these.
        self._kept = (store.kv, group.blocks, group.lengths, mask, code)
        num_parts = max(1, min(kv_heads, code.team.num_threads() // num_sequences))
        self._table = table = _Table()
        table[kernel.BLOCKS] = _address(group.blocks, np.int64)
        table[kernel.NUM_BLOCKS] = num_blocks
        table[kernel.LENGTHS] = _address(group.lengths, np.int64)
        table[kernel.MASK] = 0 if mask is None else _address(mask, np.bool_)
        table[kernel.MASK_LENGTH] = group.length
        table[kernel.WIDTH] = group.width
        table[kernel.SHARED] = heads // kv_heads
        table[kernel.KV_HEADS] = kv_heads
        table[kernel.SKIPPED] = skipped
        table[kernel.NUM_SLOTS] = num_slots
        table[kernel.HEAD_DIM] = self._head_dim
        table[kernel.HEAD_PARTS] = num_parts
        table[kernel.NUM_UNITS] = num_parts * num_sequences

    def __call__(self, layer: int, query: Tensor, scale: float) -> Tensor:
        """Implement ``GroupAttention``. Raises ``MemoryError``."""
        num_tokens = self.tokens.stop - self.tokens.start
        if query.shape != (1, self._heads, num_tokens, self._head_dim):
            raise ValueError(f"layer {layer} has queries of another shape: {tuple(query.shape)}")
        query = query.float()
        if query.stride(3) != 1:
            query = query.contiguous()
        shape = (1, num_tokens, self._heads, self._head_dim)
        out = torch.empty(shape, dtype=torch.float32, device="cpu")
        table = self._table
        keys = self._kv_address + 2 * layer * self._layer_bytes
        table[: kernel.SCALE + 1] = [
            *(0, table[kernel.NUM_UNITS]),
            *(query.data_ptr(), query.stride(1), query.stride(2)),
            *(keys, keys + self._layer_bytes),
            *(out.data_ptr(), int.from_bytes(struct.pack("<d", scale), "little")),
        ]
        self._run(table)
        if table[kernel.NUM_TAKEN] < table[kernel.NUM_UNITS]:
            raise MemoryError("no memory for the scores of a forward pass")
        return out.to(self._dtype)


def _has_code(head_dim: int, dtype: torch.dtype, device: torch.device) -> bool:
    return device.type == "cpu" and dtype in _TYPES and head_dim % vectors.LANES == 0


@cache
def _code(dtype: torch.dtype) -> TeamCode:
    """Return the code for KV of this type."""
    modules = (compilation, intrinsics, prefix, vectors, arithmetic, kernel)
    attend = kernel.attend_for(dtype == torch.bfloat16)
    files = [Path(str(module.__file__)) for module in modules]
    return compiled_for_team(attend, files, arithmetic.FASTMATH)


def _address(array: NDArray[Any], dtype: type[np.generic]) -> int:
    """Return where ``array`` lies. Raises ``ValueError`` if compiled code would misread it."""
    if array.dtype != dtype or not array.flags.c_contiguous:
        raise ValueError(f"{array.dtype} is not contiguous {dtype.__name__}")
    return int(array.__array_interface__["data"][0])
