"""The two things that units compute parts of: linear layers by columns, attention by keys."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor
from torch.nn.functional import linear

PREPARED = 8192
"""How many views are kept: to make them takes as long as to multiply by a small matrix."""


class Layers:
    """Linear layers and the views of their columns; re-dividing them copies nothing."""

    def __init__(self) -> None:
        self._layers: list[tuple[Tensor, Tensor | None]] = []
        self._columns = lru_cache(PREPARED)(self._view)

    def add(self, weight: Tensor, bias: Tensor | None) -> int:
        """Number of the layer with ``weight`` ``[columns, features]``."""
        self._layers.append((weight, bias))
        return len(self._layers) - 1

    def features(self, layer: int) -> int:
        """The length of the layer's inputs."""
        return self._layers[layer][0].shape[1]

    def columns(self, layer: int) -> int:
        """The length of its outputs."""
        return self._layers[layer][0].shape[0]

    def part(self, layer: int, first: int, end: int, inputs: Tensor) -> Tensor:
        """``[tokens, features]`` to ``[tokens, end - first]``."""
        weight, bias = self._columns(layer, first, end)
        return linear(inputs, weight, bias)

    def _view(self, layer: int, first: int, end: int) -> tuple[Tensor, Tensor | None]:
        weight, bias = self._layers[layer]
        return weight[first:end], None if bias is None else bias[first:end]


def attend(
    query: Tensor, keys: Tensor, values: Tensor, scale: float, mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Attention ``[1, kv_heads, rows, head_dim]``, and the logarithm of each query's sum of
    exponential scores ``[1, kv_heads, rows]``, by which parts over several keys are merged.

    ``mask`` is added to the scores, ``[1, 1, rows, keys]``; a row must not be −inf throughout.
    """
    attended: tuple[Tensor, Tensor] = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query, keys, values, attn_mask=mask, scale=scale
    )
    return attended


def read_kv(
    kv: Tensor, layer: int, first: int, end: int, run: int, slots: Tensor
) -> tuple[Tensor, Tensor]:
    """Keys and values ``[1, kv_heads, end - first, head_dim]`` of a sequence in ``kv``
    ``[2 * layers, slots, kv_heads, head_dim]``: consecutive from slot ``run`` on, or, if that is
    negative, in ``slots``."""
    pair = kv[2 * layer : 2 * layer + 2]
    is_run = run >= 0
    held = pair[:, run + first : run + end] if is_run else pair.index_select(1, slots[first:end])
    keys, values = held.transpose(1, 2).unbind(0)
    return keys[None], values[None]
