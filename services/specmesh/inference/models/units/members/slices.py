"""The two kinds of work that units compute in parts: linear layers by columns, attention by
keys."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn.functional import linear

from specmesh.inference.models.cpu.linear import TYPICAL_TOKENS, packable_dtypes
from specmesh.inference.models.units.plans.shares import GRANULE

PREPARED = 8192
"""The number of views that are kept: making one takes as long as multiplying by a small matrix."""


PACKED_FROM_BYTES = 4 << 20
"""In float32 smaller layers are not packed: the overhead of one more block exceeds the gain."""
FP32_PACKED_FROM_TOKENS = 4
"""With fewer tokens MKL is faster in float32, whatever the size."""
MAX_BLOCKS = 16
"""The approximate number of blocks of a packed layer whose blocks are one granule each."""

Columns = tuple[Tensor, Tensor | None]
"""Weight and bias of some columns."""


class Layers:
    """Linear layers of which any range of columns can be computed.

    Layers for which oneDNN has a layout are packed in blocks, since a packed weight has no
    contiguous columns. A range consists of a few blocks, each a power of two of granules
    long. A block is packed at its first use and kept, so a new division packs at most the blocks at
    the new border, once.
    """

    def __init__(self) -> None:
        self._layers: list[tuple[Tensor, Tensor | None]] = []
        self._plain_below: list[int] = []
        """For each layer, the number of tokens below which it is computed from its plain weight."""
        self._dtypes = packable_dtypes()
        self._columns = lru_cache(PREPARED)(self._view)
        self._blocks = lru_cache(PREPARED)(self._find_blocks)
        self._packed = lru_cache(PREPARED)(self._pack)

    def add(self, weight: Tensor, bias: Tensor | None) -> int:
        """Add the layer with ``weight`` ``[columns, features]``; return its number."""
        self._layers.append((weight, bias))
        packable = weight.device.type == "cpu" and weight.dtype in self._dtypes
        packable &= weight.dtype != torch.float32 or weight.nbytes >= PACKED_FROM_BYTES
        self._plain_below.append(_plain_below(weight) if packable else sys.maxsize)
        return len(self._layers) - 1

    def features(self, layer: int) -> int:
        """Return the length of the layer's inputs."""
        return self._layers[layer][0].shape[1]

    def columns(self, layer: int) -> int:
        """Return the length of the layer's outputs."""
        return self._layers[layer][0].shape[0]

    def granule(self, layer: int, tokens: int) -> int:
        """Return the number of columns of which ranges of the layer are multiples, for
        ``tokens``."""
        if tokens < self._plain_below[layer]:
            return GRANULE
        return GRANULE * max(1, round(self.columns(layer) / MAX_BLOCKS / GRANULE))

    def part(self, layer: int, first: int, end: int, inputs: Tensor) -> Tensor:
        """Map ``inputs`` ``[tokens, features]`` to columns ``[tokens, end - first]``."""
        tokens = len(inputs)
        if not tokens or first == end or tokens < self._plain_below[layer]:
            weight, bias = self._columns(layer, first, end)
            return linear(inputs, weight, bias)
        parts = [
            torch.ops.mkldnn._linear_pointwise(inputs, weight, bias, "none", [], "")
            for weight, bias in self._blocks(layer, first, end, self.granule(layer, tokens))
        ]
        part: Tensor = parts[0] if len(parts) == 1 else torch.cat(parts, 1)
        return part

    def forget(self) -> None:
        """Drop all packed blocks."""
        self._blocks.cache_clear()
        self._packed.cache_clear()

    def _view(self, layer: int, first: int, end: int) -> Columns:
        weight, bias = self._layers[layer]
        return weight[first:end], None if bias is None else bias[first:end]

    def _find_blocks(self, layer: int, first: int, end: int, granule: int) -> list[Columns]:
        return [self._packed(layer, *block) for block in blocks(first, end, granule)]

    def _pack(self, layer: int, first: int, end: int) -> Columns:
        weight, bias = self._view(layer, first, end)
        return torch.ops.mkldnn._reorder_linear_weight(weight, TYPICAL_TOKENS), bias


def _plain_below(weight: Tensor) -> int:
    """Return the number of tokens below which ``weight`` is used plain, not packed."""
    return FP32_PACKED_FROM_TOKENS if weight.dtype == torch.float32 else 0


def blocks(first: int, end: int, granule: int) -> Iterator[tuple[int, int]]:
    """Yield the columns from ``first``, a multiple of ``granule``, to ``end`` as few blocks. The
    length of a block is a power of two of granules, and it begins at a multiple of its length. The
    last block may be shorter."""
    strip, last = first // granule, -(-end // granule)
    while strip < last:
        count = 1
        while strip % (2 * count) == 0 and strip + 2 * count <= last:
            count *= 2
        yield strip * granule, min((strip + count) * granule, end)
        strip += count


def attend(
    query: Tensor, keys: Tensor, values: Tensor, scale: float, mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return attention ``[1, kv_heads, rows, head_dim]``, and the logarithm of each query's sum of
    exponential scores ``[1, kv_heads, rows]``, with which parts over different keys are merged.

    ``mask`` ``[1, 1, rows, keys]`` is added to the scores; no row may be entirely −inf.
    """
    attended: tuple[Tensor, Tensor] = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query, keys, values, attn_mask=mask, scale=scale
    )
    return attended


def read_kv(
    kv: Tensor, layer: int, first: int, end: int, run: int, slots: Tensor
) -> tuple[Tensor, Tensor]:
    """Return keys and values ``[1, kv_heads, end - first, head_dim]`` of a sequence in ``kv`` ``[2
    * layers, slots, kv_heads, head_dim]``. The sequence is consecutive from slot ``run`` on, or, if
    that is negative, in ``slots``."""
    pair = kv[2 * layer : 2 * layer + 2]
    is_run = run >= 0
    held = pair[:, run + first : run + end] if is_run else pair.index_select(1, slots[first:end])
    keys, values = held.transpose(1, 2).unbind(0)
    return keys[None], values[None]
