"""Linear layers on a GPU: those with the same input are one product, and a single token has a
kernel of its own, since cuBLAS reads a tenth slower than the memory allows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

TOGETHER = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
"""The names of layers with the same input, in all architectures that have layers of these names."""

_ROWS = 2
_COLUMNS = 2048
"""The size of the part of a weight that a program reads at once; on an H200 the best for the layers
of 8 B models."""


@torch.no_grad()
def replace_linears(model: Any) -> None:
    """Replace the plain linear layers of ``model``; those that are ``TOGETHER`` by joint ones."""
    for module in list(model.modules()):
        for names in TOGETHER:
            layers = [getattr(module, name, None) for name in names]
            if all(type(layer) is nn.Linear for layer in layers):
                joint = _Joint([layer for layer in layers if layer is not None])
                for number, name in enumerate(names):
                    setattr(module, name, _Columns(joint, number))
    for module in list(model.modules()):
        for name, layer in list(module.named_children()):
            if type(layer) is nn.Linear:
                setattr(module, name, _Single(layer))


@torch.library.custom_op("specmesh::matvec", mutates_args=(), device_types="cuda")
def matvec(weight: Tensor, vector: Tensor) -> Tensor:
    """Return the product of ``weight`` ``[rows, columns]`` and ``vector`` ``[columns]``, both
    contiguous."""
    from specmesh.inference.models.cuda import matvec_kernel

    rows, columns = weight.shape
    out = vector.new_empty(rows)
    matvec_kernel.multiply[(-(-rows // _ROWS),)](
        weight,
        vector,
        out,
        rows,
        columns,
        ROWS=_ROWS,
        COLUMNS=min(_COLUMNS, 1 << (columns - 1).bit_length()),
        num_warps=8,
    )
    return out


@matvec.register_fake
def _(weight: Tensor, vector: Tensor) -> Tensor:
    return vector.new_empty(weight.shape[0])


class _Single(nn.Module):
    """A replacement for one layer."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.weight, self.bias = layer.weight, layer.bias

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """Map ``[..., in_features]`` to ``[..., out_features]``."""
        return _product(input, self.weight, self.bias)


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
            joint = _product(input, self.weight, self.bias)
            self._outputs = torch.split(joint, self._sizes, -1)
        output = self._outputs[number]
        if number == len(self._sizes) - 1:
            self._input, self._outputs = None, ()
        return output


class _Columns(nn.Module):
    """A replacement for one of the layers of a joint one."""

    def __init__(self, joint: _Joint, number: int) -> None:
        super().__init__()
        self._joint, self._number = joint, number

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """Map ``[..., in_features]`` to ``[..., out_features]``."""
        return self._joint.output(input, self._number)


def _product(input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:  # noqa: A002
    """Map ``[..., in_features]`` to ``[..., out_features]``."""
    if any(size != 1 for size in input.shape[:-1]):
        return linear(input, weight, bias)
    vector = input.reshape(-1).contiguous()
    output: Tensor = matvec(weight, vector).view(*input.shape[:-1], -1)
    return output if bias is None else output + bias


def _bias(layer: nn.Linear) -> Tensor:
    if layer.bias is not None:
        return layer.bias
    return layer.weight.new_zeros(layer.out_features)
