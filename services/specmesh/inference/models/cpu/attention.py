"""Attention of groups with few new tokens by compiled code, which reads KV where it lies."""

from __future__ import annotations

import ctypes
import struct
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from specmesh.decoding.compiled import intrinsics
from specmesh.decoding.compiled.choice import Team
from specmesh.decoding.compiled.compilation import compiled, number_of
from specmesh.inference.engine.batch import Group, run_start
from specmesh.inference.engine.kv_store import KVStore
from specmesh.inference.models.cpu import attention_arithmetic as arithmetic
from specmesh.inference.models.cpu import attention_kernel as kernel
from specmesh.inference.models.cpu import attention_vectors as vectors
from specmesh.inference.team import team_for

_MOST_ROWS = 8
"""Queries of a sequence to a KV head, for which no product of matrices is faster."""
_MOST_ROWS_COPIED = 24
"""The same where KV would have to be copied out of its blocks for that."""
_TYPES = frozenset({torch.float32, torch.bfloat16})
"""The types of KV that there is code for."""
_Table = ctypes.c_int64 * kernel.NUM_FIELDS


def is_compiled(store: KVStore, group: Group, heads: int) -> bool:
    """Return whether compiled code is the fastest way to attend with ``heads`` query heads."""
    _, _, kv_heads, head_dim = store.kv.shape
    if store.kv.device.type != "cpu" or store.kv.dtype not in _TYPES or head_dim % vectors.LANES:
        return False
    is_run = len(group.blocks) == 1 and run_start(group.blocks[0]) is not None
    most = _MOST_ROWS if is_run else _MOST_ROWS_COPIED
    return bool(heads // kv_heads * group.width <= most)


class CompiledAttention:
    """Attention of the sequences of one group that ``is_compiled``; nothing attends to the first
    ``skipped`` tokens of a sequence."""

    def __init__(self, store: KVStore, group: Group, heads: int, skipped: int) -> None:
        num_sequences, num_blocks = group.blocks.shape
        _, num_slots, kv_heads, self._head_dim = store.kv.shape
        self.tokens = slice(group.start, group.start + num_sequences * group.width)
        self._heads, self._dtype = heads, store.kv.dtype
        code = _code(self._head_dim, self._dtype)
        self._run = code.team.find
        self._layer_bytes = store.kv[0].numel() * store.kv.itemsize
        self._kv_address = store.kv.data_ptr()
        mask = group.attention_mask
        self._kept = (group.blocks, group.lengths, mask)  # since the table has their addresses
        num_parts = max(1, min(kv_heads, code.team.num_threads() // num_sequences))
        self._table = table = _Table()
        table[kernel.BLOCKS] = _address(group.blocks)
        table[kernel.NUM_BLOCKS] = num_blocks
        table[kernel.LENGTHS] = _address(group.lengths)
        table[kernel.MASK] = 0 if mask is None else _address(mask)
        table[kernel.MASK_LENGTH] = group.length
        table[kernel.WIDTH] = group.width
        table[kernel.SHARED] = heads // kv_heads
        table[kernel.KV_HEADS] = kv_heads
        table[kernel.SKIPPED] = skipped
        table[kernel.NUM_SLOTS] = num_slots
        table[kernel.HEAD_PARTS] = num_parts
        table[kernel.NUM_UNITS] = num_parts * num_sequences

    def __call__(self, layer: int, query: Tensor, scale: float) -> Tensor:
        """Implement ``GroupAttention``."""
        query = query.float()
        if query.stride(3) != 1:
            query = query.contiguous()
        out = torch.empty(1, query.shape[2], self._heads, self._head_dim)
        table = self._table
        keys = self._kv_address + 2 * layer * self._layer_bytes
        table[: kernel.SCALE + 1] = [
            *(0, table[kernel.NUM_UNITS]),
            *(query.data_ptr(), query.stride(1), query.stride(2)),
            *(keys, keys + self._layer_bytes),
            *(out.data_ptr(), int.from_bytes(struct.pack("<d", scale), "little")),
        ]
        self._run(table)
        return out.to(self._dtype)


class _Code(NamedTuple):
    """The threads that attend, and what must live as long as their code."""

    team: Team
    kept: object


@cache
def _code(head_dim: int, dtype: torch.dtype) -> _Code:
    """Return the code for KV of this shape and type, compiled at its first use: it takes five
    seconds where no earlier process has left it on the disk."""
    files = (intrinsics.__file__, vectors.__file__, arithmetic.__file__, kernel.__file__)
    attend = kernel.attend_for(number_of(map(Path, files)), head_dim, dtype == torch.bfloat16)
    function = compiled(attend, arithmetic.FASTMATH)
    return _Code(team_for(function.address), function)


def _address(array: Any) -> int:
    assert array.flags.c_contiguous
    return int(array.__array_interface__["data"][0])
