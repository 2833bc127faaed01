"""Linear layers with the same input, computed as one: a few large products instead of many small."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

TOGETHER = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
"""The names of layers with the same input, in all architectures that have layers of these names."""


@torch.no_grad()
def merge_linears(model: Any) -> None:
    """Replace the layers of ``model`` that are ``TOGETHER``, where all of them are plain."""
    for module in model.modules():
        for names in TOGETHER:
            layers = [getattr(module, name, None) for name in names]
            if all(type(layer) is nn.Linear for layer in layers):
                joint = _Joint([layer for layer in layers if layer is not None])
                for number, name in enumerate(names):
                    setattr(module, name, _Columns(joint, number))


class _Joint(nn.Module):
    """Layers with the same input, with one weight."""

    def __init__(self, layers: Sequence[nn.Linear]) -> None:
        super().__init__()
        self._sizes = [layer.out_features for layer in layers]
        self.weight = nn.Parameter(
            torch.cat([layer.weight for layer in layers]), requires_grad=False
        )
        biases = [_bias(layer) for layer in layers]
        has_bias = any(layer.bias is not None for layer in layers)
        self.bias = nn.Parameter(torch.cat(biases), requires_grad=False) if has_bias else None
        self._input: Tensor | None = None
        self._outputs: tuple[Tensor, ...] = ()

    def output(self, input: Tensor, number: int) -> Tensor:  # noqa: A002
        """Return the output of the layer ``number`` for ``input``, which is only kept until all
        layers had it."""
        if self._input is not input:
            self._input = input
            self._outputs = linear(input, self.weight, self.bias).split(self._sizes, -1)
        output = self._outputs[number]
        if number == len(self._sizes) - 1:
            self._input, self._outputs = None, ()
        return output


class _Columns(nn.Module):
    """A replacement for one of the layers."""

    def __init__(self, joint: _Joint, number: int) -> None:
        super().__init__()
        self._joint, self._number = joint, number

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """Map ``[1, tokens, in_features]`` to ``[1, tokens, out_features]``."""
        return self._joint.output(input, self._number)


def _bias(layer: nn.Linear) -> Tensor:
    if layer.bias is not None:
        return layer.bias
    return layer.weight.new_zeros(layer.out_features)
