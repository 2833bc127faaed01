"""Attention divided among units: to committed KV by ranges, to new tokens by their ancestors.

Each part has its own softmax; parts are merged by the logarithms of their sums (online softmax:
Milakov and Gimelshein 2018, as in FlashAttention).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from specmesh.decoding.prefix import BLOCK_TOKENS
from specmesh.inference.engine.batch import AttentionMask, Group, run_start
from specmesh.inference.engine.kv_store import KVStore
from specmesh.inference.models.units.crew import Crew
from specmesh.inference.models.units.members.jobs import Attend
from specmesh.inference.models.units.members.slices import attend, read_kv
from specmesh.inference.models.units.pattern import Ancestors, Pattern, pattern_of

Part = tuple[Tensor, Tensor]
"""The attention of queries to some of their keys, ``[1, kv_heads, rows, head_dim]``, and the
logarithms of the sums of their exponential scores, ``[1, kv_heads, rows]``."""


def divide_attention(store: KVStore, group: Group, crew: Crew) -> DividedAttention | None:
    """Return the divided attention of ``group``; None if it is not divided, because it has several
    sequences or too little KV."""
    if len(group.blocks) > 1:
        return None
    pattern = pattern_of(group)
    ranges = crew.key_ranges(pattern.committed, group.width, group.length)
    return None if ranges is None else DividedAttention(store, group, pattern, ranges, crew)


class DividedAttention:
    """Attention of one sequence. All query heads that share a KV head are treated as further
    rows, ``shared * width`` of them."""

    def __init__(
        self,
        store: KVStore,
        group: Group,
        pattern: Pattern,
        ranges: Sequence[range],
        crew: Crew,
    ) -> None:
        self.tokens = slice(group.start, group.start + group.width)
        self._kv = store.kv
        self._kv_heads, self._head_dim = store.kv.shape[2:]
        self._width = group.width
        first = run_start(group.blocks[0])
        self._run = -1 if first is None else first * BLOCK_TOKENS
        in_block = np.arange(BLOCK_TOKENS)
        self._slots = torch.from_numpy(
            (group.blocks[0][:, None] * BLOCK_TOKENS + in_block).reshape(-1)[: group.length]
        )
        self._ranges = ranges
        self._crew = crew
        self._store = crew.store_number(store.kv)
        self._new_keys = _new_keys(pattern, self._slots, group.length)

    def __call__(self, layer: int, query: Tensor, scale: float) -> Tensor:
        """Attend with ``query`` ``[1, heads, width, head_dim]``; return ``[1, width, heads,
        head_dim]``."""
        folded = query.reshape(1, self._kv_heads, -1, self._head_dim)
        rows = folded.shape[2]
        jobs = [
            Attend(self._store, layer, rows, keys.start, keys.stop, self._run, scale)
            for keys in self._ranges
        ]
        slots = self._slots if self._run < 0 else None
        parts = self._crew.attend(folded, slots, jobs, lambda: self._own(layer, folded, scale))
        # Always copied, since the next job of a unit overwrites its results.
        return self._unfold(merge(parts) if len(parts) > 1 else parts[0][0].clone())

    def new_part(self, layer: int, query: Tensor, scale: float) -> list[Part]:
        """Return the attention of ``query`` ``[1, kv_heads, rows, head_dim]`` to the new keys, if
        there are any."""
        return [] if self._new_keys is None else [self._new_keys(self._kv, layer, query, scale)]

    def _own(self, layer: int, query: Tensor, scale: float) -> list[Part]:
        """Return the first unit's parts: its range of the committed keys, and the new ones."""
        parts = self.new_part(layer, query, scale)
        if keys := self._ranges[0]:
            held = read_kv(self._kv, layer, keys.start, keys.stop, self._run, self._slots)
            parts.append(attend(query, *held, scale))
        return parts

    def _unfold(self, attended: Tensor) -> Tensor:
        apart = attended.view(-1, self._width, self._head_dim)
        return apart.transpose(0, 1)[None]


def merge(parts: Sequence[Part]) -> Tensor:
    """Return the attention to the keys of all ``parts``, ``[1, kv_heads, rows, head_dim]``."""
    attended, log_sums = zip(*parts, strict=True)
    weights = torch.stack(log_sums).softmax(0)[..., None]
    merged = (torch.stack(attended) * weights).sum(0)
    return merged.to(attended[0].dtype)


class SparsePart:
    """Attention of new tokens to only their ancestors: no other score is computed."""

    def __init__(self, ancestors: Ancestors, slots: Tensor) -> None:
        self._width, self._depth = ancestors.keys.shape
        self._slots = slots[torch.from_numpy(ancestors.keys.reshape(-1))]
        # Masks the entries that only pad a row, [width, 1, depth].
        self._unused = torch.zeros(ancestors.unused.shape)
        self._unused[torch.from_numpy(ancestors.unused)] = -torch.inf
        self._unused = self._unused[:, None]

    def __call__(self, kv: Tensor, layer: int, query: Tensor, scale: float) -> Part:
        """Attend with ``query`` ``[1, kv_heads, shared * width, head_dim]``."""
        _, kv_heads, rows, head_dim = query.shape
        held = kv[2 * layer : 2 * layer + 2].index_select(1, self._slots)
        apart = held.view(2, self._width, self._depth, kv_heads, head_dim)
        keys, values = apart.permute(0, 3, 1, 2, 4).unbind(0)  # [kv_heads, width, depth, head_dim]
        by_node = query.view(kv_heads, -1, self._width, head_dim).transpose(1, 2)
        scores = (by_node @ keys.transpose(2, 3)).float() * scale + self._unused
        log_sums = scores.logsumexp(-1, keepdim=True)
        attended = (scores - log_sums).exp().to(values.dtype) @ values
        return (
            attended.transpose(1, 2).reshape(1, kv_heads, rows, head_dim),
            log_sums.transpose(1, 2).reshape(1, kv_heads, rows),
        )


class MaskedPart:
    """Attention of new tokens to most of the new tokens: a chain."""

    def __init__(self, mask: AttentionMask, slots: Tensor, first: int) -> None:
        self._slots = slots
        self._first, self._end = first, first + mask.shape[1]
        self._attends = mask
        self._mask: Tensor | None = None

    def __call__(self, kv: Tensor, layer: int, query: Tensor, scale: float) -> Part:
        """Attend as ``SparsePart`` does."""
        if self._mask is None:
            masked = torch.zeros(self._attends.shape, dtype=query.dtype)
            masked[torch.from_numpy(~self._attends)] = -torch.inf
            self._mask = masked.repeat(query.shape[2] // len(masked), 1)[None, None]
        held = read_kv(kv, layer, self._first, self._end, -1, self._slots)
        return attend(query, *held, scale, self._mask)


def _new_keys(pattern: Pattern, slots: Tensor, length: int) -> SparsePart | MaskedPart | None:
    if pattern.ancestors is not None:
        return SparsePart(pattern.ancestors, slots)
    if pattern.mask is not None:
        return MaskedPart(pattern.mask, slots, length - pattern.mask.shape[1])
    return None
