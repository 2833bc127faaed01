"""Linear layers in the layout that they are computed in. They take most of a forward on a CPU.

Given plain weights in bf16 or fp16, oneDNN converts their layout in every forward pass. Converted
once, a layer takes the same time for one token as for sixteen, and about two thirds of the time.
In fp32 our own code is faster (``panel_linear.py``).
"""

from __future__ import annotations

import os

import torch
from torch import Tensor, nn

from specmesh.inference.models.cpu.panel_linear import PanelLinear, best_tile
from specmesh.inference.models.cpu.replace import replace

DTYPES = frozenset({torch.bfloat16, torch.float16, torch.float32})

TYPICAL_TOKENS = 8
"""The number of tokens for which oneDNN chooses the layout; it works for any number."""

_CAPACITIES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
"""Environment variables with the sizes of the caches of machine code: oneDNN's, and torch's in
front of it."""
CACHED_PRIMITIVES = "64"
"""The size of each cache. oneDNN generates code for each width of a forward pass and shape of a
layer, which takes a millisecond, and half a megabyte if both caches hold it. With the default of
1024, forward passes of all widths grow a process by hundreds of megabytes, but only a few widths
are in use at a time."""


class PackedLinear(nn.Module):
    """A replacement for ``nn.Linear`` that oneDNN computes, without gradients."""

    def __init__(self, plain: nn.Linear) -> None:
        super().__init__()
        # Not parameters: modules look these up slowly, and torch checks them for gradients.
        self._bias = None if plain.bias is None else plain.bias.detach().clone()
        self.out_features = plain.out_features
        weight = plain.weight.detach()
        self._packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, TYPICAL_TOKENS)

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """Map ``[1, tokens, in_features]`` to ``[1, tokens, out_features]``."""
        if not input.shape[1]:  # oneDNN needs at least one token
            return input.new_empty((*input.shape[:-1], self.out_features))
        output: Tensor = torch.ops.mkldnn._linear_pointwise(
            input, self._packed, self._bias, "none", [], ""
        )
        return output


def packable_dtypes() -> frozenset[torch.dtype]:
    """Return the types of weights that oneDNN has a layout for on this processor. Also keeps the
    caches of machine code small, if it is called before any code is generated."""
    if not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return frozenset()  # an old processor, or no oneDNN
    for capacity in _CAPACITIES:
        os.environ.setdefault(capacity, CACHED_PRIMITIVES)
    if not torch.ops.mkldnn._is_mkldnn_fp16_supported():
        return DTYPES - {torch.float16}  # many processors compute in bf16 but not in fp16
    return DTYPES


def pack_linears(model: nn.Module) -> None:
    """Replace the plain linear layers of ``model`` where that is faster."""
    dtypes, tile = packable_dtypes() - {torch.float32}, best_tile()
    if tile is not None:
        dtypes |= {torch.float32}

    def is_better_packed(weight: Tensor) -> bool:
        return weight.device.type == "cpu" and weight.dtype in dtypes

    def packed(layer: nn.Module) -> nn.Module | None:
        if type(layer) is not nn.Linear or not is_better_packed(layer.weight):
            return None
        if tile is None or layer.weight.dtype != torch.float32:
            return PackedLinear(layer)
        return PanelLinear(layer, tile)

    replace(model, packed)
    for parameter in model.parameters():
        if is_better_packed(parameter):
            # It is a view of the file, and the file stays in memory while any view of it exists.
            parameter.data = parameter.data.clone()
