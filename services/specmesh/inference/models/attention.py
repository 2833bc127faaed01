"""Attention over KV in blocks, registered with transformers as an attention implementation.

The tokens of a forward pass, of many sequences, are packed in one row. A ``PagedAttention`` knows
which tokens belong together and what each attends to; every layer gets it as the keyword argument
``paged`` of the model's ``forward``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from specmesh.decoding.prefix import BLOCK_TOKENS
from specmesh.inference.engine.batch import Batch, Group, run_start
from specmesh.inference.engine.kv_store import KVStore
from specmesh.inference.model import Interrupted
from specmesh.inference.models.cpu.attention import CompiledAttention, is_compiled
from specmesh.inference.models.divider import GroupAttention

PAGED_ATTENTION = "specmesh_paged"
"""The attention implementation with which models are loaded. No mask function is registered under
this name, so transformers makes no mask."""


class PagedAttention:
    """The attention of one forward pass, layer by layer.

    Raises ``Interrupted`` from the layer at which ``is_unwanted`` returns True. ``divide``
    returns the divided attention of a group, or None if it is not divided. Nothing attends to the
    first ``skipped`` tokens of a sequence.
    """

    def __init__(
        self,
        store: KVStore,
        batch: Batch,
        is_unwanted: Callable[[], bool],
        divide: Callable[[KVStore, Group], GroupAttention | None] | None = None,
        skipped: int = 0,
    ) -> None:
        self._is_unwanted = is_unwanted
        store.expect(batch.slots, batch.padding_slots)
        self._write = store.writer(batch.slots)
        self._store, self._batch = store, batch
        self._divide, self._skipped = divide, skipped
        self._groups: list[GroupAttention] = []
        """Made by the first layer, whose query says how many heads there are."""

    def __call__(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float
    ) -> Tensor:
        """Store ``key`` and ``value`` ``[1, kv_heads, tokens, head_dim]``, then let ``query``
        ``[1, heads, tokens, head_dim]`` attend; returns ``[1, tokens, heads, head_dim]``."""
        if self._is_unwanted():
            raise Interrupted
        self._write(layer, key, value)
        if not self._groups:
            self._groups = [self._of(group, query.shape[1]) for group in self._batch.groups]
        if len(self._groups) == 1:
            return self._groups[0](layer, query, scale)
        attended = [group(layer, query[:, :, group.tokens], scale) for group in self._groups]
        return torch.cat(attended, dim=1)

    def _of(self, group: Group, heads: int) -> GroupAttention:
        """Return what attends for ``group`` with ``heads`` query heads."""
        store, skipped = self._store, self._skipped
        if self._divide is not None and (divided := self._divide(store, group)) is not None:
            return divided
        if is_compiled(store, group, heads):
            return CompiledAttention(store, group, heads, skipped)
        return _OwnAttention(store, group, skipped)


class _OwnAttention:
    """Attention of the sequences of one group: queries ``[1, heads, sequences * width, head_dim]``.

    All query heads that share a KV head are treated as further tokens, so that keys and values are
    neither repeated nor read twice.
    """

    def __init__(self, store: KVStore, group: Group, skipped: int) -> None:
        self._sequences, self._width = group.blocks.shape[0], group.width
        mask = group.attention_mask
        self._attention_mask = None if mask is None else mask[:, :, skipped:]
        self.tokens = slice(group.start, group.start + self._sequences * self._width)
        self._kv_heads, self._head_dim = store.kv.shape[2:]
        self._mask: Tensor | None = None
        first = run_start(group.blocks[0]) if self._sequences == 1 else None
        self._read = (
            _gatherer(store, group, skipped)
            if first is None
            else _slicer(store, first * BLOCK_TOKENS + skipped, group.length - skipped)
        )

    def __call__(self, layer: int, query: Tensor, scale: float) -> Tensor:
        if self._attention_mask is not None:
            self._mask = _mask(self._attention_mask, query.shape[1] // self._kv_heads, query)
            self._attention_mask = None
        keys, values = self._read(layer)
        attended = scaled_dot_product_attention(
            self._fold(query), keys, values, attn_mask=self._mask, scale=scale
        )
        return self._unfold(attended)

    def _fold(self, query: Tensor) -> Tensor:
        """Reshape ``[1, heads, tokens, ...]`` to ``[sequences, kv_heads, shared heads * width,
        ...]``."""
        if self._sequences > 1:
            apart = (self._kv_heads, -1, self._sequences, self._width, self._head_dim)
            query = query.view(apart).permute(2, 0, 1, 3, 4)
        return query.reshape(self._sequences, self._kv_heads, -1, self._head_dim)

    def _unfold(self, attended: Tensor) -> Tensor:
        """Reshape ``[sequences, kv_heads, shared heads * width, ...]`` to ``[1, tokens, heads,
        ...]``."""
        if self._width > 1:
            apart = (self._sequences, self._kv_heads, -1, self._width, self._head_dim)
            attended = attended.view(apart).permute(0, 3, 1, 2, 4)
        return attended.reshape(1, self._sequences * self._width, -1, self._head_dim)


Read = Callable[[int], tuple[Tensor, Tensor]]
"""Returns the keys and values of a layer, each ``[sequences, kv_heads, length, head_dim]``."""


def _slicer(store: KVStore, first: int, length: int) -> Read:
    """Return a function that reads one sequence in consecutive slots, without a copy."""
    held = store.run(first, length)
    return lambda layer: (held[2 * layer], held[2 * layer + 1])


def _gatherer(store: KVStore, group: Group, skipped: int) -> Read:
    blocks = store.indexes(group.blocks.reshape(-1))
    shape = (len(group.blocks), -1, *store.kv.shape[2:])

    def gather(held: Tensor) -> Tensor:
        gathered = held.index_select(0, blocks).view(shape)
        return gathered[:, skipped : group.length].transpose(1, 2)

    return lambda layer: (gather(store.blocks[2 * layer]), gather(store.blocks[2 * layer + 1]))


def _mask(attention_mask: npt.NDArray[np.bool_], shared: int, query: Tensor) -> Tensor:
    """Return the mask to add to the scores, ``[sequences, 1, shared * width, length]``: 0 or
    −inf."""
    mask = torch.zeros(attention_mask.shape, dtype=query.dtype, device=query.device)
    mask.masked_fill_(torch.from_numpy(~attention_mask).to(query.device), -torch.inf)
    return mask.repeat(1, shared, 1)[:, None]


def _attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    paged: PagedAttention,
    scaling: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attend as transformers' attention functions do: map ``[1, heads, tokens, head_dim]`` to ``[1,
    tokens, heads, ...]``."""
    assert attention_mask is None
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    return paged(module.layer_idx, query, key, value, scale), None


AttentionInterface.register(PAGED_ATTENTION, _attend)
