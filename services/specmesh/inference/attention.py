"""Attention over KV in blocks, plugged in where transformers lets one register an attention.

A forward's tokens, of many sequences, are packed in one row; which of them belong together
and what each sees is said by a ``Batch``, that travels to every layer as the keyword
argument ``paged`` of the model's forward.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from specmesh.decoding.prefix import BLOCK_TOKENS
from specmesh.inference.batch import Batch, Group, Indexes, Sees
from specmesh.inference.kv_store import KVStore
from specmesh.inference.model import Interrupted

PAGED_ATTENTION = "specmesh_paged"
"""The name to load a model with. No mask function goes with it: transformers makes no mask
for an attention that it has none for."""


class PagedAttention:
    """The attention of one forward, layer by layer.

    Raises ``Interrupted`` from the layer at which ``is_unwanted`` answers True.
    """

    def __init__(self, store: KVStore, batch: Batch, is_unwanted: Callable[[], bool]) -> None:
        self._is_unwanted = is_unwanted
        store.expect(batch.slots, batch.blanks)
        self._write = _writer(store, batch.slots)
        self._groups = [_GroupAttention(store, group) for group in batch.groups]

    def __call__(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float
    ) -> Tensor:
        """Keep ``key`` and ``value`` ``[tokens, kv_heads, head_dim]``, then let ``query``
        ``[tokens, heads, head_dim]`` attend; returns the query's shape."""
        if self._is_unwanted():
            raise Interrupted
        self._write(layer, key, value)
        if len(self._groups) == 1:
            return self._groups[0](layer, query, scale)
        return torch.cat([group(layer, query[group.tokens], scale) for group in self._groups])


class _GroupAttention:
    """Sequences of one group: their queries ``[sequences * width, heads, head_dim]``.

    All query heads that share a KV head attend as if they were tokens more, so that keys and
    values are neither repeated nor read twice.
    """

    def __init__(self, store: KVStore, group: Group) -> None:
        self._sequences, self._width = len(group.blocks), group.width
        self._length, self._sees = group.length, group.sees
        self.tokens = slice(group.start, group.start + self._sequences * self._width)
        self._kv_heads, self._head_dim = store.keys.shape[2:]
        self._mask: Tensor | None = None
        first = _run(group.blocks[0]) if self._sequences == 1 else None
        self._read = (
            _gatherer(store, group)
            if first is None
            else _slicer(store, first * BLOCK_TOKENS, group.length)
        )

    def __call__(self, layer: int, query: Tensor, scale: float) -> Tensor:
        shared = query.shape[1] // self._kv_heads
        if self._sees is not None:
            self._mask = _mask(self._sees, shared, query)
            self._sees = None
        keys, values = self._read(layer)
        folded = query.view(self._sequences, self._width, self._kv_heads, shared, self._head_dim)
        attended = scaled_dot_product_attention(
            folded.permute(0, 2, 3, 1, 4).reshape(
                self._sequences, self._kv_heads, shared * self._width, self._head_dim
            ),
            keys,
            values,
            attn_mask=self._mask,
            scale=scale,
        )
        unfolded = attended.view(
            self._sequences, self._kv_heads, shared, self._width, self._head_dim
        )
        return unfolded.permute(0, 3, 1, 2, 4).reshape(query.shape)


Read = Callable[[int], tuple[Tensor, Tensor]]
"""Keys and values of a layer, each ``[sequences, kv_heads, length, head_dim]``."""


def _slicer(store: KVStore, first: int, length: int) -> Read:
    """One sequence in slots one after the other: views, taken of all layers at once."""
    slots = slice(first, first + length)
    keys = store.keys[:, None, slots].transpose(2, 3).unbind(0)
    values = store.values[:, None, slots].transpose(2, 3).unbind(0)
    return lambda layer: (keys[layer], values[layer])


def _gatherer(store: KVStore, group: Group) -> Read:
    blocks = store.indexes(group.blocks.reshape(-1))
    shape = (len(group.blocks), -1, *store.keys.shape[2:])

    def gather(held: Tensor) -> Tensor:
        gathered = held.index_select(0, blocks).view(shape)
        return gathered[:, : group.length].transpose(1, 2)

    return lambda layer: (gather(store.key_blocks[layer]), gather(store.value_blocks[layer]))


def _mask(sees: Sees, shared: int, query: Tensor) -> Tensor:
    """What to add to the scores, ``[sequences, 1, shared * width, length]``: 0 or −inf."""
    mask = torch.zeros(sees.shape, dtype=query.dtype, device=query.device)
    mask.masked_fill_(torch.from_numpy(~sees).to(query.device), -torch.inf)
    return mask.repeat(1, shared, 1)[:, None]


def _run(indexes: Indexes) -> int | None:
    """The first of ``indexes`` if each is one more than the one before."""
    first = int(indexes[0])
    return first if (indexes == range(first, first + len(indexes))).all() else None


def _writer(store: KVStore, slots: Indexes) -> Callable[[int, Tensor, Tensor], None]:
    first = _run(slots)
    if first is not None:
        run = slice(first, first + len(slots))
        key_slots, value_slots = store.keys[:, run].unbind(0), store.values[:, run].unbind(0)

        def write_run(layer: int, key: Tensor, value: Tensor) -> None:
            key_slots[layer].copy_(key)
            value_slots[layer].copy_(value)

        return write_run
    indexes = store.indexes(slots)
    keys, values = store.keys.unbind(0), store.values.unbind(0)

    def write(layer: int, key: Tensor, value: Tensor) -> None:
        keys[layer].index_copy_(0, indexes, key)
        values[layer].index_copy_(0, indexes, value)

    return write


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
    """What transformers calls: ``[1, heads, tokens, head_dim]`` to ``[1, tokens, heads, ...]``."""
    assert attention_mask is None
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    attended = paged(
        module.layer_idx,
        query[0].transpose(0, 1),
        key[0].transpose(0, 1),
        value[0].transpose(0, 1),
        scale,
    )
    return attended[None], None


AttentionInterface.register(PAGED_ATTENTION, _attend)
